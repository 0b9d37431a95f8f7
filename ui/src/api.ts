/** The control plane's HTTP API. Every failure surfaces as an ApiError a person can read. */

import type { CostReport } from "./cost";
import type { Explanation } from "./explain";
import type { Lab } from "./labs";
import type { LicenseDebt } from "./license";
import type { Resources } from "./live";
import type { Action, Region, Session, Template, TimelineItem, WorkerView } from "./model";
import type { AuditEvent, AuditPage } from "./scaling";

/** RFC 9457. */
interface Problem {
  readonly type?: string;
  readonly title?: string;
  readonly detail?: string;
  readonly errors?: readonly { readonly field: string; readonly message: string }[];
}

export class ApiError extends Error {
  /** 0 if there was no answer at all. */
  readonly status: number;
  /** What is wrong with which field of the request. */
  readonly fields: ReadonlyMap<string, string>;

  constructor(status: number, detail: string, fields: ReadonlyMap<string, string> = new Map()) {
    super(detail);
    this.status = status;
    this.fields = fields;
  }
}

let unauthorized: () => void = () => undefined;

/** Called whenever an answer says that the session is over. */
export function onUnauthorized(callback: () => void): void {
  unauthorized = callback;
}

const TIMEOUT_MS = 20_000;

async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await send(method, path, body);
  if (!response.ok) {
    const error = await readProblem(response);
    // A refused token is an answer to the sign-in form, not the end of a session.
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
  let problem: Problem = {};
  try {
    problem = (await response.json()) as Problem;
  } catch {
    // A proxy's error page: the status is all there is to tell.
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

interface Page<T> {
  readonly items: readonly T[];
  readonly next?: string | null;
}

/** All workers but the terminated ones. */
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
    const page: Page<WorkerView> = await request("GET", path + query);
    workers.push(...page.items);
    after = page.next ?? null;
  } while (after !== null);
  return workers;
}

function workerPath(id: string): string {
  return `/api/workers/${encodeURIComponent(id)}`;
}

export function getWorker(id: string): Promise<WorkerView> {
  return request("GET", workerPath(id));
}

export async function getTimeline(id: string): Promise<readonly TimelineItem[]> {
  return (await request<Page<TimelineItem>>("GET", `${workerPath(id)}/timeline`)).items;
}

export function getResources(id: string): Promise<Resources> {
  return request("GET", `${workerPath(id)}/resources`);
}

export async function listLabs(id: string): Promise<readonly Lab[]> {
  return (await request<Page<Lab>>("GET", `${workerPath(id)}/labs`)).items;
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

interface FleetLicense {
  readonly has_token: boolean;
}

export function getFleetLicense(): Promise<FleetLicense> {
  return request("GET", "/api/settings/license");
}

export function setFleetLicense(token: string): Promise<FleetLicense> {
  return request("PUT", "/api/settings/license", { token });
}

export function removeFleetLicense(): Promise<void> {
  return request("DELETE", "/api/settings/license");
}

export async function listDebts(): Promise<readonly LicenseDebt[]> {
  return (await request<Page<LicenseDebt>>("GET", "/api/license-debts")).items;
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

export interface NewWorker {
  readonly name: string;
  readonly template_name: string;
  readonly aws_region: string;
}

export function createWorker(worker: NewWorker): Promise<WorkerView> {
  return request("POST", "/api/workers", worker);
}

export function act(id: string, action: Action): Promise<WorkerView> {
  return action === "delete" ? request("DELETE", workerPath(id)) : request("POST", `${workerPath(id)}/${action}`);
}

export async function listTemplates(): Promise<readonly Template[]> {
  return (await request<Page<Template>>("GET", "/api/worker-templates")).items;
}

export async function listRegions(): Promise<readonly Region[]> {
  return (await request<Page<Region>>("GET", "/api/regions")).items;
}
