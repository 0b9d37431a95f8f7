/** The rules of a new session or class that need no browser: what is sent, and where an error belongs. */

import { ApiError } from "../../app/api";
import type {
  FitOfSlot,
  LabletDefinitionView,
  NewBatch,
  NewSession,
  PreviewRequest,
  SchedulingPreview,
  Timeslot,
} from "../../generated/api";
import { type Color, MAX_SEATS } from "../../generated/rules";
import { formatCount } from "../../kit/format";
import { formatMinutes, fromLocalInput } from "../lablets/slot";

/** What the user has chosen so far, as the fields hold it. */
export interface Draft {
  readonly definitionId: string;
  readonly seats: string;
  readonly className: string;
  /** One per line; empty: the user who creates the class. */
  readonly owners: string;
  readonly isAllOrNothing: boolean;
  readonly isBooked: boolean;
  /** Of a datetime-local field, in the browser's zone. */
  readonly start: string;
  readonly minutes: number;
  readonly region: string;
  readonly reservation: string;
}

export type Field = "definition" | "seats" | "className" | "owners" | "when" | "region" | "reservation";

export type Problems = ReadonlyMap<Field, string>;

export function seatsOf({ seats }: Draft): number | null {
  const count = Number(seats);
  return /^\d+$/.test(seats.trim()) && count >= 1 && count <= MAX_SEATS ? count : null;
}

export function isClass(draft: Draft): boolean {
  return (seatsOf(draft) ?? 1) > 1;
}

export function ownersOf({ owners }: Draft): readonly string[] {
  return owners
    .split(/[\n,]/)
    .map((owner) => owner.trim())
    .filter((owner) => owner !== "");
}

/** Null: as soon as possible, or a time that does not exist. */
export function timeslotOf(draft: Draft, zone: string): Timeslot | null {
  const start = draft.isBooked ? fromLocalInput(draft.start) : null;
  if (start === null) return null;
  const iso = (moment: number) => new Date(moment).toISOString();
  return { start: iso(start), end: iso(start + draft.minutes * 60_000), zone };
}

/** What the fields themselves show to be wrong; everything else is for the server to judge. */
export function problemsOf(draft: Draft): Problems {
  const problems = new Map<Field, string>();
  if (draft.definitionId === "") problems.set("definition", "Choose a definition.");
  const seats = seatsOf(draft);
  if (seats === null) problems.set("seats", `A whole number from 1 to ${MAX_SEATS}.`);
  if (draft.isBooked && fromLocalInput(draft.start) === null) problems.set("when", startProblem(draft.start));
  if (!isClass(draft)) return problems;
  if (draft.className.trim() === "") problems.set("className", "Enter a name, by which the class is found again.");
  const owners = ownersOf(draft).length;
  if (owners > 0 && owners !== seats) {
    problems.set("owners", `${formatCount(owners, "owner")} for ${seats} seats: enter one for each, or none.`);
  }
  return problems;
}

function startProblem(text: string): string {
  if (text === "" || Number.isNaN(Date.parse(text))) return "Enter a day and a time.";
  return "This time does not exist in your zone: clocks are set forward. Choose another.";
}

/** What a preview needs; null as long as it is not known. */
export function previewOf(draft: Draft, zone: string): PreviewRequest | null {
  const count = seatsOf(draft);
  const timeslot = timeslotOf(draft, zone);
  if (draft.definitionId === "" || count === null || (draft.isBooked && timeslot === null)) return null;
  return {
    definition_id: draft.definitionId,
    count,
    timeslot,
    is_all_or_nothing: count > 1 && draft.isAllOrNothing,
    aws_region: draft.region === "" ? null : draft.region,
  };
}

interface Common {
  readonly timeslot?: Timeslot;
  readonly aws_region?: string;
}

function commonOf(draft: Draft, zone: string): Common {
  const timeslot = timeslotOf(draft, zone);
  return {
    ...(timeslot === null ? {} : { timeslot }),
    ...(draft.region === "" ? {} : { aws_region: draft.region }),
  };
}

export function sessionBody(draft: Draft, zone: string): NewSession {
  const reservation = draft.reservation.trim();
  return {
    definition_id: draft.definitionId,
    ...commonOf(draft, zone),
    ...(reservation === "" ? {} : { reservation_id: reservation }),
  };
}

export function classBody(draft: Draft, zone: string): NewBatch {
  const owners = ownersOf(draft);
  return {
    definition_id: draft.definitionId,
    name: draft.className.trim(),
    count: seatsOf(draft) ?? 1,
    all_or_nothing: draft.isAllOrNothing,
    ...(owners.length === 0 ? {} : { owners }),
    ...commonOf(draft, zone),
  };
}

const FIELD_OF_KIND: Readonly<Record<string, Field>> = {
  "invalid-timeslot": "when",
  "no-capacity-in-slot": "when",
  "moment-passed": "when",
  "not-found": "definition",
  "impossible-needs": "definition",
  "unknown-reference": "region",
};

const FIELD_OF_BODY: Readonly<Record<string, Field>> = {
  definition_id: "definition",
  definition: "definition",
  count: "seats",
  name: "className",
  owners: "owners",
  timeslot: "when",
  aws_region: "region",
  reservation_id: "reservation",
};

/** The API's errors at the fields they are about; `rest` is what belongs to none. */
export function problemsOfError(error: unknown): { readonly fields: Problems; readonly rest: string | null } {
  if (!(error instanceof ApiError)) return { fields: new Map(), rest: String(error) };
  const fields = new Map<Field, string>();
  for (const [name, message] of error.fields) {
    const field = FIELD_OF_BODY[/^[a-z_]+/.exec(name)?.[0] ?? ""];
    if (field !== undefined) fields.set(field, message);
  }
  const kind = FIELD_OF_KIND[error.kind] ?? (/\breservation\b/.test(error.message) ? "reservation" : undefined);
  if (fields.size === 0 && kind !== undefined) fields.set(kind, error.message);
  return { fields, rest: fields.size === 0 ? error.message : null };
}

/**
 * The idempotency key of an attempt: the same request that is sent again has the same key, so that a lost answer
 * never leads to a second session; another request has another.
 */
export class AttemptKeys {
  #body = "";
  #key = "";

  keyFor(body: unknown): string {
    const text = JSON.stringify(body);
    if (text !== this.#body) {
      this.#body = text;
      this.#key = randomKey();
    }
    return this.#key;
  }

  /** The request succeeded: the same again is meant as another one. */
  done(): void {
    this.#body = "";
  }
}

/** Browsers offer randomUUID to secure pages only. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const VERDICTS: Readonly<Record<FitOfSlot, { readonly label: string; readonly color: Color }>> = {
  fits: { label: "Fits", color: "green" },
  tight: { label: "Tight", color: "orange" },
  over: { label: "Over", color: "red" },
};

export function verdictInfo(verdict: FitOfSlot): { readonly label: string; readonly color: Color } {
  return VERDICTS[verdict] ?? { label: verdict, color: "purple" };
}

/** What becomes of the seats: "24 of 30 seats get a worker at once, 6 wait." */
export function seatsSentence({ seats, placed, waiting, impossible }: SchedulingPreview): string {
  const total = seats.length;
  if (total === 1 && placed === 1) return "It gets a worker at once.";
  if (placed === total) return `All ${total} seats get a worker at once.`;
  const parts = [
    placed > 0 ? `${placed} of ${total} seats get a worker at once` : null,
    waiting > 0
      ? `${waiting === total && total === 1 ? "it waits for a worker" : `${waiting} wait for a worker`}`
      : null,
    impossible > 0 ? `${impossible === 1 && total === 1 ? "it" : impossible} can never be placed` : null,
  ].filter((part) => part !== null);
  const text = parts.join(", ");
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** When the last seat is expected to have a worker; null if a seat has no expectation. */
export function lastEta({ seats }: SchedulingPreview): string | null {
  const waiting = seats.filter(({ outcome }) => outcome !== "assign");
  const times = waiting.map(({ eta }) => eta?.likely ?? null);
  if (times.length === 0 || times.includes(null)) return null;
  return times.reduce((latest, time) => ((time ?? "") > (latest ?? "") ? time : latest), null);
}

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export function findDefinitions(
  definitions: readonly LabletDefinitionView[],
  text: string,
): readonly LabletDefinitionView[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return definitions
    .filter(({ name, version, options }) => {
      const haystack = `${name} ${version} ${options.description}`.toLowerCase();
      return words.every((word) => haystack.includes(word));
    })
    .sort((a, b) => natural.compare(a.name, b.name) || natural.compare(b.version, a.version));
}

/** "4 CPU · 8.5 GB · 3 nodes · 2 ports · up to 2 h". */
export function needsSentence({ demand, options }: LabletDefinitionView): string {
  const { cpu, memory_gb: memory, nodes } = demand.needs;
  const ports = demand.ports.length;
  return [
    `${cpu} CPU`,
    `${Math.round(memory * 10) / 10} GB`,
    formatCount(nodes, "node"),
    ports > 0 ? formatCount(ports, "port") : null,
    `up to ${formatMinutes(options.max_duration_minutes)}`,
  ]
    .filter((part) => part !== null)
    .join(" · ");
}

const LENGTHS: readonly number[] = [15, 30, 45, 60, 90, 120, 150, 180, 240, 300, 360, 420, 480];

/** The lengths of a timeslot that the definition allows; its longest is one of them. */
export function lengthsUpTo(longest: number): readonly number[] {
  return [...LENGTHS.filter((minutes) => minutes < longest), longest];
}

export interface Mistake {
  readonly line: number | null;
  readonly text: string;
}

/** The mistakes of a topology: the API names them in one sentence, each with its line. */
export function mistakesOf(detail: string): readonly Mistake[] {
  return detail.split(/;\s+(?=line \d+: )/).map((text) => {
    const found = /^line (\d+): (.*)$/s.exec(text);
    return found === null ? { line: null, text } : { line: Number(found[1]), text: found[2] ?? "" };
  });
}
