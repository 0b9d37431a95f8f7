/** The control plane's HTTP API. Every failure is an ApiError with a message for the user. */

import type {
  Action,
  AuditEvent,
  AuditPage,
  CostReport,
  Explanation,
  HistoryEntry,
  LabList,
  LabRecord,
  LicenseDebt,
  LicenseDebts,
  LicenseSettings,
  NewWorker,
  Problem,
  RegionList,
  RegionView,
  Resources,
  SessionView,
  TemplateList,
  Timeline,
  WorkerPage,
  WorkerTemplate,
  WorkerView,
} from "../generated/api";
import type { Role } from "../generated/rules";

export type Session = SessionView & { readonly role: Role };

export class ApiError extends Error {
  /** 0 if there was no response. */
  readonly status: number;
  /** The error of each field of the request. */
  readonly fields: ReadonlyMap<string, string>;

  constructor(status: number, detail: string, fields: ReadonlyMap<string, string> = new Map()) {
    super(detail);
    this.status = status;
    this.fields = fields;
  }
}

let unauthorized: () => void = () => undefined;

/** Set what is called whenever a response says that the session has ended. */
export function onUnauthorized(callback: () => void): void {
  unauthorized = callback;
}

const TIMEOUT_MS = 20_000;

async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await send(method, path, body);
  if (!response.ok) {
    const error = await readProblem(response);
    // A rejected token is an error of the sign-in form, not the end of a session.
    if (error.status === 401 && !(method === "POST" && path === "/api/session")) unauthorized();
    throw error;
  }
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

async function send(method: string, path: string, body: unknown): Promise<Response> {
  const init: RequestInit = {
    method,
    headers: { Accept: "application/json" },
    credentials: "same-origin",
    cache: "no-store",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  };
  if (body !== undefined) {
    init.headers = { Accept: "application/json", "Content-Type": "application/json" };
    init.body = JSON.stringify(body);
  }
  try {
    return await fetch(path, init);
  } catch {
    throw new ApiError(0, "The control plane does not answer. Check the connection and try again.");
  }
}

async function readProblem(response: Response): Promise<ApiError> {
  let problem: Partial<Problem> = {};
  try {
    problem = (await response.json()) as Partial<Problem>;
  } catch {
    // A proxy's error page: only the status is known.
  }
  const detail = problem.detail ?? problem.title ?? `The control plane answered ${response.status}.`;
  const fields = new Map((problem.errors ?? []).map((error) => [error.field, error.message]));
  if (problem.type?.endsWith("name-taken") === true) fields.set("name", detail);
  return new ApiError(response.status, detail, fields);
}

export function getSession(): Promise<Session> {
  return request("GET", "/api/session");
}

export function signIn(token: string): Promise<Session> {
  return request("POST", "/api/session", { token });
}

export function signOut(): Promise<void> {
  return request("DELETE", "/api/session");
}

/** All workers except the terminated ones. */
export function listWorkers(): Promise<WorkerView[]> {
  return listAllPages("/api/workers?limit=500");
}

export function listTerminatedWorkers(): Promise<WorkerView[]> {
  return listAllPages("/api/workers?limit=500&status=terminated&include_terminated=true");
}

async function listAllPages(path: string): Promise<WorkerView[]> {
  const workers: WorkerView[] = [];
  let after: string | null = null;
  do {
    const query: string = after === null ? "" : `&after=${encodeURIComponent(after)}`;
    const page: WorkerPage = await request("GET", path + query);
    workers.push(...page.items);
    after = page.next;
  } while (after !== null);
  return workers;
}

function workerPath(id: string): string {
  return `/api/workers/${encodeURIComponent(id)}`;
}

export function getWorker(id: string): Promise<WorkerView> {
  return request("GET", workerPath(id));
}

export async function getTimeline(id: string): Promise<readonly HistoryEntry[]> {
  return (await request<Timeline>("GET", `${workerPath(id)}/timeline`)).items;
}

export function getResources(id: string): Promise<Resources> {
  return request("GET", `${workerPath(id)}/resources`);
}

export async function listLabs(id: string): Promise<readonly LabRecord[]> {
  return (await request<LabList>("GET", `${workerPath(id)}/labs`)).items;
}

export function explain(id: string): Promise<Explanation> {
  return request("GET", `${workerPath(id)}/explain`);
}

export function hold(id: string, until: Date, reason: string): Promise<WorkerView> {
  return request("PUT", `${workerPath(id)}/hold`, { until: until.toISOString(), reason });
}

export function endHold(id: string): Promise<WorkerView> {
  return request("DELETE", `${workerPath(id)}/hold`);
}

export function switchAutoPause(id: string, isOn: boolean): Promise<WorkerView> {
  return request("POST", `${workerPath(id)}/idle-detection/${isOn ? "enable" : "disable"}`);
}

export function registerLicense(id: string, token: string): Promise<WorkerView> {
  return request("POST", `${workerPath(id)}/license`, { token });
}

export function deregisterLicense(id: string): Promise<WorkerView> {
  return request("DELETE", `${workerPath(id)}/license`);
}

export function setCmlLogin(id: string, username: string, password: string): Promise<WorkerView> {
  return request("PUT", `${workerPath(id)}/cml-login`, { username, password });
}

export function removeCmlLogin(id: string): Promise<WorkerView> {
  return request("DELETE", `${workerPath(id)}/cml-login`);
}

export function setTags(id: string, tags: Readonly<Record<string, string>>): Promise<WorkerView> {
  return request("PUT", `${workerPath(id)}/tags`, { tags });
}

export function getFleetLicense(): Promise<LicenseSettings> {
  return request("GET", "/api/settings/license");
}

export function setFleetLicense(token: string): Promise<LicenseSettings> {
  return request("PUT", "/api/settings/license", { token });
}

export function removeFleetLicense(): Promise<void> {
  return request("DELETE", "/api/settings/license");
}

export async function listDebts(): Promise<readonly LicenseDebt[]> {
  return (await request<LicenseDebts>("GET", "/api/license-debts")).items;
}

export function settleDebt(workerId: string): Promise<LicenseDebt> {
  return request("POST", `/api/license-debts/${encodeURIComponent(workerId)}/settle`);
}

/** Newest first; `before` is the `next` of the page before. */
export function listAudit(event: AuditEvent | null, before: string | null = null): Promise<AuditPage> {
  const query = new URLSearchParams({ limit: "50" });
  if (event !== null) query.set("event", event);
  if (before !== null) query.set("before", before);
  return request("GET", `/api/scaling/audit?${query}`);
}

export function getCost(): Promise<CostReport> {
  return request("GET", "/api/cost");
}

export function createWorker(worker: NewWorker): Promise<WorkerView> {
  return request("POST", "/api/workers", worker);
}

export function act(id: string, action: Action): Promise<WorkerView> {
  return action === "delete" ? request("DELETE", workerPath(id)) : request("POST", `${workerPath(id)}/${action}`);
}

export async function listTemplates(): Promise<readonly WorkerTemplate[]> {
  return (await request<TemplateList>("GET", "/api/worker-templates")).items;
}

export async function listRegions(): Promise<readonly RegionView[]> {
  return (await request<RegionList>("GET", "/api/regions")).items;
}
