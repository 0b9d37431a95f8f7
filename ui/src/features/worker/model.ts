/** The rules of the dashboard about workers that need no browser. */

import type { Action, DesiredStatus, WorkerStatus, WorkerTemplate, WorkerView } from "../../generated/api";
import {
  BILLED,
  type Color,
  MAX_LENGTH,
  ROLE_OF_REQUEST,
  ROLES,
  type Role,
  STATUS_COLOR,
  STATUS_MEANING,
  STATUSES,
  WORKER_NAME,
} from "../../generated/rules";

export type GroupId = "running" | "rising" | "falling" | "stopped" | "attention" | "terminated";

interface StatusInfo {
  readonly label: string;
  readonly color: Color;
  readonly group: GroupId;
  readonly meaning: string;
  /** On its way to another status: the badge breathes. */
  readonly moving: boolean;
}

const GROUP_OF: Readonly<Record<WorkerStatus, GroupId>> = {
  pending: "rising",
  provisioning: "rising",
  starting: "rising",
  running: "running",
  draining: "falling",
  stopping: "falling",
  stopped: "stopped",
  terminating: "falling",
  terminated: "terminated",
  failed: "attention",
  unknown: "attention",
};

const STATUS_INFO: ReadonlyMap<WorkerStatus, StatusInfo> = new Map(
  STATUSES.map((status) => {
    const group = GROUP_OF[status];
    return [
      status,
      {
        label: status.charAt(0).toUpperCase() + status.slice(1),
        color: STATUS_COLOR[status],
        group,
        meaning: STATUS_MEANING[status],
        moving: group === "rising" || group === "falling",
      },
    ];
  }),
);

const UNKNOWN = STATUS_INFO.get("unknown") as StatusInfo;

/** A status of a newer server is shown as unknown. */
export function statusInfo(status: WorkerStatus): StatusInfo {
  return STATUS_INFO.get(status) ?? UNKNOWN;
}

export interface Group {
  readonly id: GroupId;
  readonly label: string;
  readonly color: Color;
}

export const GROUPS: readonly Group[] = [
  { id: "running", label: "Running", color: "green" },
  { id: "rising", label: "Coming up", color: "orange" },
  { id: "falling", label: "Going down", color: "blue" },
  { id: "stopped", label: "Stopped", color: "grey" },
  { id: "attention", label: "Attention", color: "red" },
];

export function usdPerHour(workers: Iterable<WorkerView>, templates: readonly WorkerTemplate[]): number {
  const prices = new Map(templates.map((template) => [template.name, template.usd_per_hour]));
  let total = 0;
  for (const worker of workers) {
    if (BILLED.includes(worker.status)) total += prices.get(worker.template_name) ?? 0;
  }
  return total;
}

const ACTIONS: readonly Action[] = ["start", "cancel-drain", "stop", "drain", "retry", "delete"];

export const ACTION_LABEL: Readonly<Record<Action, string>> = {
  start: "Start",
  stop: "Stop",
  drain: "Drain",
  "cancel-drain": "Cancel drain",
  retry: "Retry",
  delete: "Delete",
};

/** What the user must know before the click. */
const ACTION_HINT: Readonly<Partial<Record<Action, string>>> = {
  stop: "Stop: running nodes are powered off, and configurations that were not extracted are lost.",
  drain: "Drain: stop when the sessions have ended. Running nodes are powered off then.",
};

export function actionHint(action: Action): string {
  return ACTION_HINT[action] ?? ACTION_LABEL[action];
}

/** What a user can request of the API; "hold" is everything about pausing. */
export type Operation =
  | Action
  | "create"
  | "hold"
  | "license"
  | "cml-login"
  | "adopt"
  | "certificate"
  | "tags"
  | "book"
  | "define"
  | "abandon"
  | "template"
  | "discovery"
  | "tokens"
  | "sign-out-everywhere"
  | "discover-labs"
  | "run-lab"
  | "remove-lab"
  | "adopt-lab"
  | "disown-lab";

const REQUEST_FOR: Readonly<Record<Operation, keyof typeof ROLE_OF_REQUEST>> = {
  book: "POST /api/lablet-sessions",
  define: "POST /api/lablet-definitions",
  template: "PUT /api/worker-templates/{name}",
  discovery: "PATCH /api/settings/discovery",
  tokens: "POST /api/tokens",
  "sign-out-everywhere": "DELETE /api/session/all",
  "discover-labs": "POST /api/workers/{worker_id}/labs/discover",
  "run-lab": "POST /api/workers/{worker_id}/labs/{lab_id}/start",
  "remove-lab": "POST /api/workers/{worker_id}/labs/{lab_id}/remove",
  "adopt-lab": "POST /api/workers/{worker_id}/labs/{lab_id}/adopt",
  "disown-lab": "POST /api/workers/{worker_id}/labs/{lab_id}/disown",
  abandon: "POST /api/lablet-sessions/{session_id}/abandon",
  start: "POST /api/workers/{worker_id}/start",
  stop: "POST /api/workers/{worker_id}/stop",
  drain: "POST /api/workers/{worker_id}/drain",
  "cancel-drain": "POST /api/workers/{worker_id}/cancel-drain",
  retry: "POST /api/workers/{worker_id}/retry",
  hold: "PUT /api/workers/{worker_id}/hold",
  tags: "PUT /api/workers/{worker_id}/tags",
  delete: "DELETE /api/workers/{worker_id}",
  create: "POST /api/workers",
  license: "POST /api/workers/{worker_id}/license",
  "cml-login": "PUT /api/workers/{worker_id}/cml-login",
  adopt: "POST /api/workers/{worker_id}/adopt",
  certificate: "PUT /api/workers/{worker_id}/cml-certificate",
};

/** Why this role may not request the operation, or null if it may. */
export function denialReason(role: Role, operation: Operation): string | null {
  const needed = ROLE_OF_REQUEST[REQUEST_FOR[operation]];
  if (ROLES.indexOf(role) >= ROLES.indexOf(needed)) return null;
  return `Needs the role ${needed}; you are signed in as ${role}.`;
}

/** The actions that would change something: a request for the present desired status is left out. */
export function effectiveActions(worker: WorkerView): readonly Action[] {
  return ACTIONS.filter((action) => worker.possible_actions.includes(action) && wouldChange(worker, action));
}

function wouldChange(worker: WorkerView, action: Action): boolean {
  switch (action) {
    case "start":
      // A drain is left by its cancellation, which names better what happens.
      return worker.desired_status !== "running" && !worker.possible_actions.includes("cancel-drain");
    case "stop":
      // A stop ends a drain early.
      return worker.desired_status !== "stopped" || worker.status === "draining";
    case "delete":
      return worker.desired_status !== "terminated";
    case "drain":
    case "cancel-drain":
    case "retry":
      return true;
  }
}

/** The actions of the panel in their fixed places: which of them are enabled changes. */
export function panelActions({ status }: WorkerView): readonly Action[] {
  return [status === "failed" ? "retry" : "start", "stop", status === "draining" ? "cancel-drain" : "drain", "delete"];
}

/** Why the action is disabled now, or null if it is enabled. */
export function actionDisabledReason(worker: WorkerView, action: Action): string | null {
  if (effectiveActions(worker).includes(action)) return null;
  if (worker.desired_status === desiredAfter(action)) return "Already the desired status.";
  return `Not possible while ${statusInfo(worker.status).label.toLowerCase()}.`;
}

/** A row has space for the actions that are used most; the panel has all of them. */
export function rowActions(worker: WorkerView): readonly Action[] {
  const left = worker.status === "draining" ? "stop" : "drain";
  return effectiveActions(worker).filter((action) => action !== left);
}

/** The desired status once the action is accepted. */
export function desiredAfter(action: Action): DesiredStatus {
  switch (action) {
    case "start":
    case "cancel-drain":
    case "retry":
      return "running";
    case "stop":
    case "drain":
      return "stopped";
    case "delete":
      return "terminated";
  }
}

export function matchesText(worker: WorkerView, text: string): boolean {
  const needle = text.trim().toLowerCase();
  if (needle === "") return true;
  const haystack = [
    worker.name,
    worker.id,
    worker.public_ip,
    worker.private_ip,
    worker.template_name,
    worker.instance_type,
    worker.ec2_instance_id,
    worker.aws_region,
  ];
  return haystack.some((value) => value?.toLowerCase().includes(needle) ?? false);
}

export type SortColumn = "name" | "status" | "template" | "region" | "cml" | "address" | "age";

export interface Sort {
  readonly column: SortColumn;
  readonly descending: boolean;
}

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function needsAttention(status: WorkerStatus): boolean {
  return GROUP_OF[status] === "attention";
}

/** What needs attention comes first, then the order of the lifecycle. */
const STATUS_RANK: ReadonlyMap<WorkerStatus, number> = new Map(
  [...STATUSES.filter(needsAttention), ...STATUSES.filter((status) => !needsAttention(status))].map((status, rank) => [
    status,
    rank,
  ]),
);

function sortKey(worker: WorkerView, column: SortColumn): string {
  switch (column) {
    case "name":
      return worker.name;
    case "status":
      return String(STATUS_RANK.get(worker.status) ?? 0);
    case "template":
      return `${worker.template_name} ${worker.instance_type ?? ""}`;
    case "region":
      return worker.aws_region;
    case "cml":
      return `${worker.cml_version ?? ""} ${worker.cml_ready ? 1 : 0}`;
    case "address":
      return worker.public_ip ?? worker.private_ip ?? "";
    case "age":
      return worker.created_at;
  }
}

/** Ties are ordered by name and then id, so that the order of rows is stable. */
export function compareWorkers(sort: Sort): (a: WorkerView, b: WorkerView) => number {
  // The lowest age belongs to the latest creation.
  const direction = sort.descending === (sort.column === "age") ? 1 : -1;
  return (a, b) =>
    direction * natural.compare(sortKey(a, sort.column), sortKey(b, sort.column)) ||
    natural.compare(a.name, b.name) ||
    natural.compare(a.id, b.id);
}

/** How to correct a worker's name, or null if it is valid. */
export function nameProblem(name: string): string | null {
  if (WORKER_NAME.test(name)) return null;
  if (name === "") return "Enter a name.";
  if (name.length > MAX_LENGTH.workerName)
    return `At most ${MAX_LENGTH.workerName} characters; this has ${name.length}.`;
  if (/[A-Z]/.test(name)) return "Lower case letters only.";
  if (/[^a-z0-9-]/.test(name)) return "Only the letters a to z, digits and hyphens.";
  return "Begin and end with a letter or a digit.";
}

/** The first free name of the form cml-01. */
export function suggestName(taken: Iterable<string>): string {
  const names = new Set(taken);
  for (let n = 1; ; n += 1) {
    const name = `cml-${String(n).padStart(2, "0")}`;
    if (!names.has(name)) return name;
  }
}

/** The default; without one the cheapest that can run CML, and nothing rather than one that cannot. */
export function preselected(offered: readonly WorkerTemplate[]): WorkerTemplate | undefined {
  return offered.find((offer) => offer.default) ?? offered.find(hasKvm);
}

export function hasKvm({ nested_virtualization: isNested, instance_type: type }: WorkerTemplate): boolean {
  return isNested || /\.metal/.test(type);
}
