/** How far the lab of a session is: its steps with their tries, and its nodes with their times. */

import type { LabletSessionView, StepRecord, StepStatus } from "../../generated/api";
import { type Color, LAB_STEPS, type LabStep, MAX_BOOTS } from "../../generated/rules";
import { isEnding, sessionInfo } from "./model";

/** A step of a newer server is shown by its name. */
const LABEL: Readonly<Partial<Record<string, string>>> = {
  look: "Look for the lab",
  intent: "Intend the import",
  import: "Import the topology",
  record: "Record the lab",
  check: "Check the tags of its ports",
  start: "Start",
  boot: "Boot every node",
  access: "Read the access",
  probe: "Probe the ports",
  run: "Keep it running",
  collect: "Collect what it holds",
  stop: "Stop",
  wipe: "Wipe",
  delete: "Delete",
  prove: "Prove that it is gone",
};

/** What every lab goes through; the other steps are shown when there is something to say of them. */
const BRINGS_UP: readonly LabStep[] = ["import", "check", "start", "boot"];

const COLOR: Readonly<Record<StepStatus, Color>> = {
  pending: "grey",
  running: "orange",
  completed: "green",
  failed: "red",
  skipped: "grey",
};

export interface StepLine {
  readonly id: LabStep;
  readonly label: string;
  readonly status: StepStatus;
  readonly color: Color;
  /** "try 2 of 3"; "" for the first try. */
  readonly tries: string;
  readonly detail: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
}

/** Whether there is anything to say of a lab: it has one, or gets one. */
export function hasProgress(session: LabletSessionView): boolean {
  return session.lab !== null || sessionInfo(session.status).phase === "starting";
}

export function stepsOf(session: LabletSessionView): readonly StepLine[] {
  return LAB_STEPS.flatMap((id) => {
    const record = id === "import" ? importOf(session) : session.steps[id];
    if (record === undefined && !BRINGS_UP.includes(id)) return [];
    return [lineOf(id, record ?? { status: "pending" })];
  });
}

/** The import is not reported as a step: the lab itself is stored before it and completed after it. */
function importOf({ lab }: LabletSessionView): StepRecord | undefined {
  if (lab === null) return undefined;
  return {
    status: lab.lab_id === null ? "running" : "completed",
    attempts: lab.generation,
    started_at: lab.intent_at,
    ended_at: lab.imported_at,
    detail: lab.is_adopted ? "CML did not answer; the lab was found by its marker." : "",
  };
}

function lineOf(id: LabStep, { status, attempts = 0, detail = "", ...times }: StepRecord): StepLine {
  const limit = id === "boot" ? ` of ${MAX_BOOTS}` : "";
  return {
    id,
    label: LABEL[id] ?? id,
    status,
    color: COLOR[status],
    tries: attempts > 1 ? `try ${attempts}${limit}` : "",
    detail: inWords(detail),
    startedAt: times.started_at ?? null,
    endedAt: times.ended_at ?? null,
  };
}

/** "boot_timeout: not booted in time" without the code in front. */
export function inWords(text: string): string {
  return text.replace(/^[a-z]+(_[a-z]+)+: /, "");
}

/** Whether its lab is at rest while its session runs, and LCM did not stop it. */
export function isStoppedOutside(session: LabletSessionView): boolean {
  return session.status === "running" && !isEnding(session) && session.steps["run"]?.status === "failed";
}

// Nodes.

const BOOTED = "BOOTED";

type States = LabletSessionView["nodes"];

/** The nodes as the page has seen them: a state has no time of its own. */
export interface SeenNodes {
  readonly states: States;
  /** When each node was seen to boot. */
  readonly bootedAt: ReadonlyMap<string, number>;
}

/** What is known once these states have arrived; a node that had booted before is of unknown time. */
export function seeNodes(before: SeenNodes | null, states: States, now: number): SeenNodes {
  if (before?.states === states) return before;
  const bootedAt = new Map<string, number>();
  for (const [label, state] of Object.entries(states)) {
    if (state !== BOOTED) continue;
    const known = before?.bootedAt.get(label);
    const seen = before !== null && before.states[label] !== BOOTED ? now : known;
    if (seen !== undefined) bootedAt.set(label, seen);
  }
  return { states, bootedAt };
}

export function countBooted(states: States): number {
  return Object.values(states).filter((state) => state === BOOTED).length;
}

/** When the nodes began to boot, the last time. */
export function bootStart({ steps, lab }: LabletSessionView): string | null {
  return steps["boot"]?.started_at ?? lab?.started_at ?? null;
}

/** How long the node has been booting, or took to boot: "42 s"; "" where that is unknown. */
export function bootTime(seen: SeenNodes, label: string, start: string | null, now: number): string {
  if (start === null) return "";
  const end = seen.states[label] === BOOTED ? seen.bootedAt.get(label) : now;
  const milliseconds = end === undefined ? -1 : end - Date.parse(start);
  return milliseconds < 0 ? "" : `${Math.floor(milliseconds / 1_000)} s`;
}
