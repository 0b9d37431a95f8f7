/**
 * The labs of the open worker: fetched, then updated by the stream, and fetched again when the stream has
 * reconnected or sent a new snapshot. An event wins over a response that was sent at the same time.
 */

import { computed, effect, signal } from "@preact/signals";
import { snapshotCount } from "../../app/store";
import { connection } from "../../app/stream";
import type * as generated from "../../generated/api";
import type { Color } from "../../generated/rules";
import type { Topology } from "../topology/layout";

export type LabNode = Pick<generated.LabNode, "label" | "state"> & Partial<Pick<generated.LabNode, "x" | "y">>;

export type Lab = Pick<generated.LabRecord, "lab_id" | "title" | "state"> & {
  readonly nodes: Readonly<Record<string, LabNode>>;
};

export type LabChange = Omit<generated.LabChange, "at">;

export interface LabStatus {
  readonly worker_id: string;
  readonly lab_id: string;
  readonly lab: Lab | null;
}

/** The labs of the open worker; null until they are loaded. */
export const labs = signal<ReadonlyMap<string, Lab> | null>(null);

/** How long an event wins over a response. */
const STREAM_WINS_MS = 5_000;

let followed: string | null = null;
const streamedAt = new Map<string, number>();

export function trackLabs(workerId: string | null): void {
  followed = workerId;
  streamedAt.clear();
  labs.value = null;
}

/** Load the labs of a worker and keep them current until the returned function is called. */
export function subscribeToLabs(
  workerId: string,
  fetchLabs: (workerId: string) => Promise<readonly Lab[]>,
): () => void {
  trackLabs(workerId);
  const isLive = computed(() => connection.value === "live");
  const stop = effect(() => {
    // Events may have been missed whenever the stream has reconnected or sent a new snapshot.
    void snapshotCount.value;
    if (!isLive.value) return;
    fetchLabs(workerId).then(
      (answer) => applyLabs(workerId, answer, Date.now()),
      () => undefined, // the stream still delivers changes
    );
  });
  return () => {
    stop();
    trackLabs(null);
  };
}

/** Apply a response, which may be older than the events that arrived since the request. */
export function applyLabs(workerId: string, answer: readonly Lab[], now: number): void {
  if (workerId !== followed) return;
  const known = labs.peek();
  const next = new Map<string, Lab>();
  for (const lab of answer) {
    if (!isFresh(lab.lab_id, now)) next.set(lab.lab_id, lab);
  }
  for (const [id, lab] of known ?? []) {
    if (isFresh(id, now))
      next.set(
        id,
        merged(
          answer.find((other) => other.lab_id === id),
          lab,
        ),
      );
  }
  labs.value = next;
}

function isFresh(labId: string, now: number): boolean {
  return now - (streamedAt.get(labId) ?? Number.NEGATIVE_INFINITY) < STREAM_WINS_MS;
}

/** Fill what the stream did not carry from the response. */
function merged(answer: Lab | undefined, streamed: Lab): Lab {
  if (answer === undefined) return streamed;
  const nodes: Record<string, LabNode> = { ...answer.nodes };
  for (const [id, node] of Object.entries(streamed.nodes)) {
    const known = nodes[id];
    nodes[id] = { ...known, label: node.label ?? known?.label ?? null, state: node.state ?? known?.state ?? null };
  }
  return { ...streamed, title: streamed.title ?? answer.title, state: streamed.state ?? answer.state, nodes };
}

export function applyLabChange(change: LabChange, now: number): void {
  if (change.worker_id !== followed) return;
  streamedAt.set(change.lab_id, now);
  const lab = labAfter(labs.peek()?.get(change.lab_id), change);
  setLab(change.lab_id, lab);
}

/** Apply the whole lab, or its deletion. */
export function applyLabStatus(status: LabStatus, now: number): void {
  if (status.worker_id !== followed) return;
  streamedAt.set(status.lab_id, now);
  setLab(status.lab_id, status.lab ?? undefined);
}

function setLab(id: string, lab: Lab | undefined): void {
  const next = new Map(labs.peek() ?? []);
  if (lab === undefined) next.delete(id);
  else next.set(id, lab);
  labs.value = next;
}

const LIFE = new Set(["created", "modified", "deleted"]);

function labAfter(known: Lab | undefined, change: LabChange): Lab | undefined {
  const lab = known ?? { lab_id: change.lab_id, title: null, state: null, nodes: {} };
  const what = change.event.toLowerCase();
  const state = (LIFE.has(what) ? change.data["state"] : change.event) ?? null;
  if (change.element_type === "lab") {
    if (what === "deleted") return undefined;
    const title = change.data["title"] ?? change.data["lab_title"] ?? lab.title;
    return { ...lab, title, state: state ?? lab.state };
  }
  if (change.element_type !== "node") return lab;
  const { [change.element_id]: node, ...others } = lab.nodes;
  if (what === "deleted") return { ...lab, nodes: others };
  const label = change.data["label"] ?? node?.label ?? null;
  const changed = { ...node, label, state: state ?? node?.state ?? null };
  return { ...lab, nodes: { ...lab.nodes, [change.element_id]: changed } };
}

/** The nodes whose places are known. */
export function placesOf(lab: Lab): Topology {
  const nodes = sortedNodes(lab).flatMap(([id, { label, x, y }]) =>
    typeof x === "number" && typeof y === "number" ? [{ label: label ?? id, definition: null, x, y }] : [],
  );
  return { nodes, links: [] };
}

const COLORS: Readonly<Record<string, Color>> = {
  BOOTED: "green",
  STARTED: "orange",
  QUEUED: "orange",
  DISCONNECTED: "red",
};

/** A booted node is green; a node that has only started is orange. */
export function nodeColor(state: string | null): Color {
  return COLORS[state ?? ""] ?? "grey";
}

export function labColor(state: string | null): Color {
  if (state === "STARTED") return "green";
  return state === "QUEUED" ? "orange" : "grey";
}

/** "DEFINED_ON_CORE" as "defined on core". */
export function stateLabel(state: string | null): string {
  if (state === null) return "unknown";
  return state.toLowerCase().replaceAll("_", " ");
}

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export function sortedLabs(known: ReadonlyMap<string, Lab>): readonly Lab[] {
  return [...known.values()].sort(
    (a, b) => natural.compare(a.title ?? a.lab_id, b.title ?? b.lab_id) || natural.compare(a.lab_id, b.lab_id),
  );
}

export function sortedNodes(lab: Lab): readonly (readonly [string, LabNode])[] {
  return Object.entries(lab.nodes).sort(([a, left], [b, right]) => natural.compare(left.label ?? a, right.label ?? b));
}
