/** What the control plane tells us, and every rule about it that needs no browser. */

export const STATUSES = [
  "pending",
  "provisioning",
  "starting",
  "running",
  "draining",
  "stopping",
  "stopped",
  "terminating",
  "terminated",
  "failed",
  "unknown",
] as const;

export type Status = (typeof STATUSES)[number];
export type DesiredStatus = "running" | "stopped" | "terminated";
export type Action = "start" | "stop" | "drain" | "cancel-drain" | "retry" | "delete";
export type Role = "viewer" | "operator" | "admin";

export interface WorkerView {
  readonly id: string;
  readonly name: string;
  readonly template_name: string;
  readonly aws_region: string;
  readonly tags: Readonly<Record<string, string>>;
  readonly created_at: string;
  readonly created_by: string;
  readonly updated_at: string;
  readonly version: number;
  readonly generation: number;
  readonly desired_status: DesiredStatus;
  readonly status: Status;
  readonly status_reason: string;
  readonly ec2_instance_id: string | null;
  readonly instance_type: string | null;
  readonly ami_id: string | null;
  readonly ami_name: string | null;
  readonly public_ip: string | null;
  readonly private_ip: string | null;
  readonly cml_version: string | null;
  readonly cml_ready: boolean;
  /** Null if LCM uses the fleet's login. */
  readonly cml_username: string | null;
  readonly labs_count: number | null;
  readonly ws_connected: boolean;
  /** Where the live connection stands; null before there was one. */
  readonly ws_status: string | null;
  readonly last_activity_at: string | null;
  readonly is_idle_detection_enabled: boolean;
  /** When it is paused unless somebody uses it. */
  readonly target_pause_at: string | null;
  readonly hold: Hold | null;
  readonly sessions: readonly string[];
  readonly drain_deadline_at: string | null;
  readonly license: License;
  readonly possible_actions: readonly Action[];
}

/** Somebody wants the worker left running, used or not, until then. */
export interface Hold {
  readonly until: string;
  readonly by: string;
  readonly reason: string;
}

export interface License {
  readonly status: "unlicensed" | "registered" | "deregistered" | "failed";
  readonly tier: string | null;
  readonly pending_operation: "register" | "deregister" | null;
  readonly operation_in_progress: boolean;
  readonly attempts: number;
  readonly last_error: string;
}

export interface TimelineItem {
  readonly from: Status | null;
  readonly to: Status;
  readonly by: string;
  readonly reason: string;
  readonly at: string;
}

export interface Template {
  readonly name: string;
  readonly description: string;
  readonly instance_type: string;
  readonly cpu: number;
  readonly memory_gb: number;
  readonly disk_gb: number;
  readonly max_nodes: number;
  readonly usd_per_hour: number;
  readonly enabled: boolean;
}

export interface Region {
  readonly name: string;
  readonly is_default: boolean;
}

export interface Session {
  readonly actor: string;
  readonly role: Role;
}

/** Each tone is a set of colours in styles/tokens.css. */
export type Tone = "green" | "orange" | "red" | "grey" | "blue" | "purple" | "fading";

export type GroupId = "running" | "rising" | "falling" | "stopped" | "attention" | "terminated";

interface StatusInfo {
  readonly label: string;
  readonly tone: Tone;
  readonly group: GroupId;
  readonly meaning: string;
  /** On its way to another status: the badge breathes. */
  readonly moving: boolean;
}

const STATUS_INFO: Readonly<Record<Status, StatusInfo>> = {
  pending: {
    label: "Pending",
    tone: "orange",
    group: "rising",
    moving: true,
    meaning: "The record exists; no instance is known yet.",
  },
  provisioning: {
    label: "Provisioning",
    tone: "orange",
    group: "rising",
    moving: true,
    meaning: "EC2 accepted the launch; the instance is not running yet.",
  },
  starting: {
    label: "Starting",
    tone: "orange",
    group: "rising",
    moving: true,
    meaning: "The instance is on its way to running, or runs without a known address.",
  },
  running: {
    label: "Running",
    tone: "green",
    group: "running",
    moving: false,
    meaning: "The instance runs and has an address.",
  },
  draining: {
    label: "Draining",
    tone: "blue",
    group: "falling",
    moving: true,
    meaning: "Takes no new sessions; stops when the present ones are over.",
  },
  stopping: {
    label: "Stopping",
    tone: "fading",
    group: "falling",
    moving: true,
    meaning: "A stop was decided; the instance is on its way down.",
  },
  stopped: {
    label: "Stopped",
    tone: "grey",
    group: "stopped",
    moving: false,
    meaning: "The instance is stopped. Its disk is kept; compute costs nothing.",
  },
  terminating: {
    label: "Terminating",
    tone: "red",
    group: "falling",
    moving: true,
    meaning: "Termination was decided; the instance is on its way out.",
  },
  terminated: {
    label: "Terminated",
    tone: "grey",
    group: "terminated",
    moving: false,
    meaning: "The instance is gone for good. The record stays for the audit.",
  },
  failed: {
    label: "Failed",
    tone: "red",
    group: "attention",
    moving: false,
    meaning: "LCM gave up. Retry tries again, Delete cleans up.",
  },
  unknown: {
    label: "Unknown",
    tone: "purple",
    group: "attention",
    moving: false,
    meaning: "EC2 reports something LCM does not understand; it keeps looking.",
  },
};

export function isKnownStatus(status: Status): boolean {
  return status in STATUS_INFO;
}

/** A status this page has never heard of is shown as unknown rather than breaking the page. */
export function statusInfo(status: Status): StatusInfo {
  return STATUS_INFO[status] ?? STATUS_INFO.unknown;
}

export interface Group {
  readonly id: GroupId;
  readonly label: string;
  readonly tone: Tone;
}

export const GROUPS: readonly Group[] = [
  { id: "running", label: "Running", tone: "green" },
  { id: "rising", label: "Coming up", tone: "orange" },
  { id: "falling", label: "Going down", tone: "blue" },
  { id: "stopped", label: "Stopped", tone: "grey" },
  { id: "attention", label: "Attention", tone: "red" },
];

/** Statuses in which EC2 bills compute. */
const BILLED: ReadonlySet<Status> = new Set<Status>(["starting", "running", "draining", "stopping"]);

export function usdPerHour(workers: Iterable<WorkerView>, templates: readonly Template[]): number {
  const prices = new Map(templates.map((template) => [template.name, template.usd_per_hour]));
  let total = 0;
  for (const worker of workers) {
    if (BILLED.has(worker.status)) total += prices.get(worker.template_name) ?? 0;
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

const ROLE_RANK: Readonly<Record<Role, number>> = { viewer: 0, operator: 1, admin: 2 };

/** What a role is needed for; "hold" is everything about pausing. */
export type Deed = Action | "create" | "hold" | "license" | "cml-login" | "tags";

const ROLE_FOR: Readonly<Record<Deed, Role>> = {
  start: "operator",
  stop: "operator",
  drain: "operator",
  "cancel-drain": "operator",
  retry: "operator",
  hold: "operator",
  tags: "operator",
  delete: "admin",
  create: "admin",
  license: "admin",
  "cml-login": "admin",
};

/** Why this role may not do it, or null if it may. */
export function refusal(role: Role, deed: Deed): string | null {
  const needed = ROLE_FOR[deed];
  if (ROLE_RANK[role] >= ROLE_RANK[needed]) return null;
  return `Needs the role ${needed}; you are signed in as ${role}.`;
}

/** The actions that would change something: asking for what is already wanted is left out. */
export function sensibleActions(worker: WorkerView): readonly Action[] {
  return ACTIONS.filter((action) => worker.possible_actions.includes(action) && wouldChange(worker, action));
}

function wouldChange(worker: WorkerView, action: Action): boolean {
  switch (action) {
    case "start":
      // Out of a drain leads its cancellation, which says better what happens.
      return worker.desired_status !== "running" && !worker.possible_actions.includes("cancel-drain");
    case "stop":
      // A stop cuts a drain short.
      return worker.desired_status !== "stopped" || worker.status === "draining";
    case "delete":
      return worker.desired_status !== "terminated";
    case "drain":
    case "cancel-drain":
    case "retry":
      return true;
  }
}

/** Where the panel has which action: what is possible changes, the places do not. */
export function panelActions({ status }: WorkerView): readonly Action[] {
  return [status === "failed" ? "retry" : "start", "stop", status === "draining" ? "cancel-drain" : "drain", "delete"];
}

/** Why the action would change nothing now, or null if it would. */
export function actionObstacle(worker: WorkerView, action: Action): string | null {
  if (sensibleActions(worker).includes(action)) return null;
  if (worker.desired_status === desiredAfter(action)) return "That is what is wanted already.";
  return `Not while it is ${statusInfo(worker.status).label.toLowerCase()}.`;
}

/** Rows have room for the two that are used most; the panel has all of them. */
export function rowActions(worker: WorkerView): readonly Action[] {
  const left = worker.status === "draining" ? "stop" : "drain";
  return sensibleActions(worker).filter((action) => action !== left);
}

/** What people will want once the action is accepted. */
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

/** What needs a person comes first, then the order of a worker's life. */
const STATUS_RANK: ReadonlyMap<Status, number> = new Map(
  (["failed", "unknown", ...STATUSES.slice(0, -2)] as const).map((status, rank) => [status, rank]),
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

/** Ties are settled by name and then id, so that rows never swap places for no reason. */
export function compareWorkers(sort: Sort): (a: WorkerView, b: WorkerView) => number {
  // The youngest age belongs to the latest creation.
  const direction = sort.descending === (sort.column === "age") ? 1 : -1;
  return (a, b) =>
    direction * natural.compare(sortKey(a, sort.column), sortKey(b, sort.column)) ||
    natural.compare(a.name, b.name) ||
    natural.compare(a.id, b.id);
}

const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** What is wrong with a worker's name in words that say how to mend it, or null. */
export function nameProblem(name: string): string | null {
  if (NAME.test(name)) return null;
  if (name === "") return "Give the worker a name.";
  if (name.length > 63) return `At most 63 characters; this has ${name.length}.`;
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
