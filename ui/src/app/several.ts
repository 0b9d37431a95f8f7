/** One request for each of several records, a few at a time. */

import { messageOf } from "./api";

export interface Refusal<T> {
  readonly item: T;
  readonly message: string;
}

const AT_ONCE = 6;

/** Send a request for every item; returns those that were refused, with the reason. `onAnswer` counts the answers. */
export async function sendAll<T>(
  items: readonly T[],
  send: (item: T) => Promise<void>,
  onAnswer: (answered: number) => void = () => undefined,
): Promise<readonly Refusal<T>[]> {
  const refusals: Refusal<T>[] = [];
  const waiting = [...items];
  let answered = 0;

  async function work(): Promise<void> {
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) {
      try {
        await send(item);
      } catch (error) {
        refusals.push({ item, message: messageOf(error) });
      }
      answered += 1;
      onAnswer(answered);
    }
  }

  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return refusals;
}
