/** The rules of the page of all labs that need no browser: what is shown, in which words, and what may be requested. */

import type { LabAction, LabAdoptionRequest, LabKind, LabletDefinitionView, LabView } from "../../generated/api";
import { type Color, LAB_KIND_MEANING, LAB_KINDS, LEAK_MEANING } from "../../generated/rules";
import { formatRemaining } from "../../kit/format";

export interface LabFilter {
  /** The id of a worker; "" for all. */
  readonly worker: string;
  /** "" for every kind. */
  readonly kind: LabKind | "";
}

export const ALL_LABS: LabFilter = { worker: "", kind: "" };

export function labFilterOf(query: URLSearchParams): LabFilter {
  const kind = LAB_KINDS.find((candidate) => candidate === query.get("kind"));
  return { worker: query.get("worker") ?? "", kind: kind ?? "" };
}

export function labQueryOf({ worker, kind }: LabFilter): string {
  const query = new URLSearchParams();
  if (worker !== "") query.set("worker", worker);
  if (kind !== "") query.set("kind", kind);
  return query.toString();
}

/** The labs that the filter shows; those of each kind are counted whatever kind is chosen. */
export function shownLabs(labs: readonly LabView[], { worker, kind }: LabFilter): readonly LabView[] {
  return labs.filter((lab) => (worker === "" || lab.worker_id === worker) && (kind === "" || lab.kind === kind));
}

export function countKind(labs: readonly LabView[], { worker }: LabFilter, kind: LabKind): number {
  return shownLabs(labs, { worker, kind }).length;
}

export interface KindInfo {
  readonly label: string;
  readonly color: Color;
  readonly meaning: string;
}

const KIND: Readonly<Record<LabKind, { readonly label: string; readonly color: Color }>> = {
  session: { label: "Session", color: "green" },
  foreign: { label: "Foreign", color: "blue" },
  adopted: { label: "Adopted", color: "purple" },
  leaked: { label: "Leaked", color: "orange" },
  orphaned: { label: "Orphaned", color: "red" },
};

export function kindInfo(kind: LabKind | null): KindInfo {
  if (kind === null) return { label: "New", color: "grey", meaning: "No discovery has shown yet whose it is." };
  return { ...KIND[kind], meaning: LAB_KIND_MEANING[kind] };
}

export function keyOf({ worker_id, lab_id }: LabView): string {
  return `${worker_id}/${lab_id}`;
}

export function nameOf({ title, lab_id }: LabView): string {
  return title ?? lab_id;
}

/** "3 of 4 run", "4", or "" if they are not counted. */
export function nodesText({ node_count, running_nodes }: LabView): string {
  if (node_count === null) return "";
  return running_nodes === 0 ? String(node_count) : `${running_nodes} of ${node_count} run`;
}

export const DOING: Readonly<Record<LabAction, string>> = {
  start: "Start",
  stop: "Stop",
  remove: "Removal",
  adopt: "Adoption",
  disown: "Disowning",
};

/** What is requested of it, who keeps it, why it is leaked and what follows; "" if there is nothing to say. */
export function noteOf(lab: LabView, now: number): string {
  return [requestText(lab), adoptionText(lab), leakText(lab, now)].filter((text) => text !== "").join(" ");
}

function requestText({ request }: LabView): string {
  if (request === null) return "";
  const { action, by, error, is_over } = request;
  if (error === "") return `${DOING[action]} requested by ${by}.`;
  return `${DOING[action]} ${is_over ? "failed" : "is tried again"}: ${error}`;
}

function adoptionText({ adoption }: LabView): string {
  if (adoption === null) return "";
  const { by, definition } = adoption;
  const as =
    definition === null || definition === undefined ? "" : ` as a lab of ${definition.name} ${definition.version}`;
  return `Adopted by ${by}${as}: LCM never removes it by itself.`;
}

function leakText({ leak, leak_kept, removed_from }: LabView, now: number): string {
  if (leak === null) return "";
  const reason = LEAK_MEANING[leak];
  if (leak_kept !== "") return `${reason} It is kept: ${leak_kept}.`;
  if (removed_from === null) return reason;
  const left = Date.parse(removed_from) - now;
  return `${reason} LCM removes it ${left > 0 ? `in ${formatRemaining(left)}` : "now"}.`;
}

/** What would change something: the server says what is possible, and a lab that runs as a whole is not started. */
export function canRequest({ possible_actions, running_nodes, node_count }: LabView, action: LabAction): boolean {
  if (!possible_actions.includes(action)) return false;
  if (action === "start") return node_count === null || running_nodes < node_count;
  return action !== "stop" || running_nodes > 0;
}

/** The adoption as the chosen definition; without one, as none. */
export function adoptionOf(definitions: readonly LabletDefinitionView[], id: string): LabAdoptionRequest {
  const chosen = definitions.find((each) => each.id === id);
  return chosen === undefined ? {} : { definition: chosen.name, version: chosen.version };
}

/** Whether the removal asks for the title: people keep the lab. */
export function asksForTitle({ kind }: LabView): boolean {
  return kind === "foreign" || kind === "adopted";
}
