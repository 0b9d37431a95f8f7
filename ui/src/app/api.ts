/** The control plane's HTTP API. Every failure is an ApiError with a message for the user. */

import type {
  Action,
  AuditEvent,
  AuditOutcome,
  AuditPage,
  CostReport,
  Explanation,
  HistoryEntry,
  HistoryRange,
  LabList,
  LabRecord,
  LicenseDebt,
  LicenseDebts,
  LicenseSettings,
  LicenseTerms,
  LoadHistory,
  NewWorker,
  Problem,
  RegionList,
  RegionView,
  Resources,
  SecurityAuditPage,
  SessionView,
  SignInWays,
  SystemView,
  TemplateList,
  Timeline,
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
  /** The kind of problem, as in "invalid-timeslot"; "" if the response names none. */
  readonly kind: string;

  constructor(status: number, detail: string, fields: ReadonlyMap<string, string> = new Map(), kind = "") {
    super(detail);
    this.status = status;
    this.fields = fields;
    this.kind = kind;
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

let unauthorized: () => void = () => undefined;

/** Set what is called whenever a response says that the session has ended. */
export function onUnauthorized(callback: () => void): void {
  unauthorized = callback;
}

const TIMEOUT_MS = 20_000;

export interface RequestOptions {
  /** Makes it safe to send the same request again. */
  readonly idempotencyKey?: string;
  /** The version that is to be changed; refused at any other. */
  readonly ifMatch?: string;
  /** Ends the request; its answer is of no interest any more. */
  readonly signal?: AbortSignal;
}

export async function request<T>(
  method: string,
  path: string,
  body?: unknown,
  options: RequestOptions = {},
): Promise<T> {
  const response = await accepted(method, path, body, options);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

/** A record as it was read, with the tag that names this version of it. */
export interface Read<T> {
  readonly value: T;
  readonly tag: string;
}

export async function read<T>(path: string): Promise<Read<T>> {
  const response = await accepted("GET", path, undefined, {});
  return { value: (await response.json()) as T, tag: response.headers.get("ETag") ?? "*" };
}

async function accepted(method: string, path: string, body: unknown, options: RequestOptions): Promise<Response> {
  const response = await send(method, path, body, options);
  if (response.ok) return response;
  const error = await readProblem(response);
  // A rejected token is an error of the sign-in form, not the end of a session.
  if (error.status === 401 && !(method === "POST" && path === "/api/session")) unauthorized();
  throw error;
}

async function send(method: string, path: string, body: unknown, options: RequestOptions): Promise<Response> {
  const aborter = new AbortController();
  const abort = () => aborter.abort();
  const timer = window.setTimeout(abort, TIMEOUT_MS);
  options.signal?.addEventListener("abort", abort);
  try {
    return await fetch(path, {
      method,
      headers: headersOf(body, options),
      credentials: "same-origin",
      cache: "no-store",
      signal: aborter.signal,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch {
    throw new ApiError(0, "The control plane does not answer. Check the connection and try again.");
  } finally {
    window.clearTimeout(timer);
    options.signal?.removeEventListener("abort", abort);
  }
}

function headersOf(body: unknown, { idempotencyKey, ifMatch }: RequestOptions): Record<string, string> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (ifMatch !== undefined) headers["If-Match"] = ifMatch;
  if (idempotencyKey !== undefined) headers["Idempotency-Key"] = idempotencyKey;
  return headers;
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
  return new ApiError(response.status, detail, fields, problem.type?.split(":").at(-1) ?? "");
}

export function getSession(): Promise<Session> {
  return request("GET", "/api/session");
}

export function signIn(token: string): Promise<Session> {
  return request("POST", "/api/session", { token });
}

export function getSignInWays(): Promise<SignInWays> {
  return request("GET", "/api/session/sign-in");
}

export function signOut(): Promise<void> {
  return request("DELETE", "/api/session");
}

export function signOutEverywhere(): Promise<void> {
  return request("DELETE", "/api/session/all");
}

/** All workers except the terminated ones. */
export function listWorkers(): Promise<WorkerView[]> {
  return listAllPages<WorkerView>("/api/workers?limit=500");
}

export function listTerminatedWorkers(): Promise<WorkerView[]> {
  return listAllPages<WorkerView>("/api/workers?limit=500&status=terminated&include_terminated=true");
}

interface PageOf<T> {
  readonly items: readonly T[];
  readonly next: string | null;
}

/** All pages of a list; the path has a query already. */
export async function listAllPages<T>(path: string): Promise<T[]> {
  const items: T[] = [];
  let after: string | null = null;
  do {
    const query: string = after === null ? "" : `&after=${encodeURIComponent(after)}`;
    const page: PageOf<T> = await request("GET", path + query);
    items.push(...page.items);
    after = page.next;
  } while (after !== null);
  return items;
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

export function getLoadHistory(id: string, range: HistoryRange): Promise<LoadHistory> {
  return request("GET", `${workerPath(id)}/history?range=${range}`);
}

export async function listLabs(id: string): Promise<readonly LabRecord[]> {
  return (await request<LabList>("GET", `${workerPath(id)}/labs`)).items;
}

export function explain(id: string): Promise<Explanation> {
  return request("GET", `${workerPath(id)}/explain`);
}

/** `until` is ISO 8601. */
export function hold(id: string, until: string, reason: string): Promise<WorkerView> {
  return request("PUT", `${workerPath(id)}/hold`, { until, reason });
}

export function endHold(id: string): Promise<WorkerView> {
  return request("DELETE", `${workerPath(id)}/hold`);
}

export function switchAutoPause(id: string, isOn: boolean): Promise<WorkerView> {
  return request("POST", `${workerPath(id)}/idle-detection/${isOn ? "enable" : "disable"}`);
}

export function registerLicense(id: string, token: string, terms: LicenseTerms): Promise<WorkerView> {
  return request("POST", `${workerPath(id)}/license`, { token, ...terms });
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

export function acceptCertificate(id: string, sha256: string): Promise<WorkerView> {
  return request("PUT", `${workerPath(id)}/cml-certificate`, { sha256 });
}

/** Trust the server that presents this certificate; null: it has presented none yet. */
export function adopt(id: string, certificate: string | null): Promise<WorkerView> {
  return request("POST", `${workerPath(id)}/adopt`, { certificate_sha256: certificate });
}

export function setTags(id: string, tags: Readonly<Record<string, string>>): Promise<WorkerView> {
  return request("PUT", `${workerPath(id)}/tags`, { tags });
}

export function getFleetLicense(): Promise<LicenseSettings> {
  return request("GET", "/api/settings/license");
}

export function setFleetLicense(token: string, terms: LicenseTerms): Promise<LicenseSettings> {
  return request("PUT", "/api/settings/license", { token, ...terms });
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

export interface AuditFilter {
  readonly outcome: AuditOutcome | null;
  /** Part of a target. */
  readonly target: string;
  /** Id or name of a principal. */
  readonly principal: string;
}

export function auditHref(filter: AuditFilter, further: Readonly<Record<string, string>>): string {
  const query = new URLSearchParams(further);
  if (filter.outcome !== null) query.set("outcome", filter.outcome);
  if (filter.target !== "") query.set("target", filter.target);
  if (filter.principal !== "") query.set("principal", filter.principal);
  return `/api/audit?${query}`;
}

/** Newest first; `before` is the `next` of the page before. */
export function listSecurityAudit(filter: AuditFilter, before: string | null): Promise<SecurityAuditPage> {
  return request("GET", auditHref(filter, before === null ? { limit: "50" } : { limit: "50", before }));
}

/** Of the present month without another. */
export function getCost(month: string | null = null): Promise<CostReport> {
  return request("GET", month === null ? "/api/cost" : `/api/cost?month=${encodeURIComponent(month)}`);
}

export function getSystem(): Promise<SystemView> {
  return request("GET", "/api/system");
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
