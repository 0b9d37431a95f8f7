/** Only the newest request counts: it waits until the user pauses, and ends the one before. */

export class Latest<Request, Answer> {
  readonly #send: (request: Request, signal: AbortSignal) => Promise<Answer>;
  readonly #onAnswer: (answer: Answer) => void;
  readonly #onProblem: (error: unknown) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #running: AbortController | null = null;

  constructor(
    send: (request: Request, signal: AbortSignal) => Promise<Answer>,
    onAnswer: (answer: Answer) => void,
    onProblem: (error: unknown) => void,
  ) {
    this.#send = send;
    this.#onAnswer = onAnswer;
    this.#onProblem = onProblem;
  }

  /** Send it after the delay, unless another one comes first. */
  request(request: Request, delayMs: number): void {
    this.cancel();
    this.#timer = setTimeout(() => void this.#run(request), delayMs);
  }

  /** Neither an answer nor an error of an earlier request arrives after this. */
  cancel(): void {
    clearTimeout(this.#timer);
    this.#running?.abort();
    this.#running = null;
  }

  async #run(request: Request): Promise<void> {
    const running = new AbortController();
    this.#running = running;
    try {
      const answer = await this.#send(request, running.signal);
      if (!running.signal.aborted) this.#onAnswer(answer);
    } catch (error) {
      if (!running.signal.aborted) this.#onProblem(error);
    }
  }
}
