/** The routes about lablet definitions, sessions and their scheduling. */

import type {
  BatchAccess,
  BatchCreated,
  DefinitionOptions,
  LabletDefinitionView,
  LabletSessionView,
  NewBatch,
  NewDefinition,
  NewSession,
  PlacementPage,
  PreviewRequest,
  SchedulingCalendar,
  SchedulingPreview,
  SchedulingQueue,
  SessionAccess,
  SessionCreated,
  SessionExplanation,
  SessionHistory,
  SessionHistoryEntry,
  TopologyAnalysis,
} from "../generated/api";
import { SESSION_ENDED, SESSION_STATUSES } from "../generated/rules";
import { listAllPages, type RequestOptions, request } from "./api";

const LIVE = SESSION_STATUSES.filter((status) => !SESSION_ENDED.includes(status));

function statusQuery(statuses: readonly string[]): string {
  return statuses.map((status) => `status=${status}`).join("&");
}

interface SessionPage {
  readonly items: readonly LabletSessionView[];
}

export function listLiveSessions(): Promise<LabletSessionView[]> {
  return listAllPages(`/api/lablet-sessions?limit=500&${statusQuery(LIVE)}`);
}

/** The newest of the sessions that have ended. */
export async function listEndedSessions(): Promise<readonly LabletSessionView[]> {
  const path = `/api/lablet-sessions?limit=500&${statusQuery(SESSION_ENDED)}`;
  return (await request<SessionPage>("GET", path)).items;
}

/** The sessions that are placed on a worker. */
export function listSessionsOfWorker(workerId: string): Promise<LabletSessionView[]> {
  return listAllPages(`/api/lablet-sessions?limit=500&worker_id=${encodeURIComponent(workerId)}`);
}

function sessionPath(id: string): string {
  return `/api/lablet-sessions/${encodeURIComponent(id)}`;
}

export function getSession(id: string): Promise<LabletSessionView> {
  return request("GET", sessionPath(id));
}

export async function getHistory(id: string): Promise<readonly SessionHistoryEntry[]> {
  return (await request<SessionHistory>("GET", `${sessionPath(id)}/history`)).items;
}

export function explainSession(id: string): Promise<SessionExplanation> {
  return request("GET", `${sessionPath(id)}/explain`);
}

/** How its owner reaches the lab; it may hold a password. */
export function getAccess(id: string): Promise<SessionAccess> {
  return request("GET", `${sessionPath(id)}/access`);
}

/** The file that was kept of an import of the session. */
export function evidenceFile(id: string, n: number): string {
  return `${sessionPath(id)}/evidence/${n}`;
}

/** How every seat of a class reaches its lab; it may hold passwords. */
export function getClassAccess(batchId: string): Promise<BatchAccess> {
  return request("GET", classAccessPath(batchId));
}

/** The same as a file for a spreadsheet. */
export function classAccessFile(batchId: string): string {
  return `${classAccessPath(batchId)}?format=csv`;
}

function classAccessPath(batchId: string): string {
  return `/api/lablet-batches/${encodeURIComponent(batchId)}/access`;
}

/** End a session that is being stopped, although its lab may remain. */
export function abandonSession(id: string, reason: string): Promise<LabletSessionView> {
  return request("POST", `${sessionPath(id)}/abandon`, { reason });
}

export function endSession(id: string): Promise<LabletSessionView> {
  return request("POST", `${sessionPath(id)}/end`);
}

export function extendSession(id: string, end: string): Promise<LabletSessionView> {
  return request("POST", `${sessionPath(id)}/extend`, { end });
}

/** Start the lab of a session that runs again. */
export function restartLab(id: string): Promise<LabletSessionView> {
  return request("POST", `${sessionPath(id)}/restart-lab`);
}

export function retrySession(id: string): Promise<LabletSessionView> {
  return request("POST", `${sessionPath(id)}/retry`);
}

export function createSession(session: NewSession, options: RequestOptions): Promise<SessionCreated> {
  return request("POST", "/api/lablet-sessions", session, options);
}

export function createClass(batch: NewBatch, options: RequestOptions): Promise<BatchCreated> {
  return request("POST", "/api/lablet-sessions/batch", batch, options);
}

export function previewScheduling(preview: PreviewRequest, options: RequestOptions): Promise<SchedulingPreview> {
  return request("POST", "/api/scheduling/preview", preview, options);
}

/** What is booked between two moments, and the demand against the capacity at every step. */
export function getCalendar(begin: number, end: number, stepMinutes: number): Promise<SchedulingCalendar> {
  const query = new URLSearchParams({
    from: new Date(begin).toISOString(),
    to: new Date(end).toISOString(),
    step: String(stepMinutes),
  });
  return request("GET", `/api/scheduling/calendar?${query}`);
}

export function getQueue(): Promise<SchedulingQueue> {
  return request("GET", "/api/scheduling/queue");
}

/** The newest decisions of the scheduler. */
export function listPlacements(limit: number): Promise<PlacementPage> {
  return request("GET", `/api/placements?limit=${limit}`);
}

/** The definitions from which sessions can be created. */
export function listDefinitions(): Promise<LabletDefinitionView[]> {
  return listAllPages("/api/lablet-definitions?limit=500&status=active");
}

/** Every version that is not deleted. */
export function listAllDefinitions(): Promise<LabletDefinitionView[]> {
  return listAllPages("/api/lablet-definitions?limit=500");
}

/** The versions of a definition, newest first. */
export async function listVersions(name: string): Promise<readonly LabletDefinitionView[]> {
  const path = `/api/lablet-definitions?limit=500&name=${encodeURIComponent(name)}`;
  return (await listAllPages<LabletDefinitionView>(path)).reverse();
}

function definitionPath(id: string): string {
  return `/api/lablet-definitions/${encodeURIComponent(id)}`;
}

export function getDefinition(id: string): Promise<LabletDefinitionView> {
  return request("GET", definitionPath(id));
}

/** Its picture, what it needs and where it can run. */
export function getAnalysis(id: string): Promise<TopologyAnalysis> {
  return request("GET", `${definitionPath(id)}/analysis`);
}

/** The server completes the options. */
export interface DefinitionRequest extends Omit<NewDefinition, "options"> {
  readonly options?: Partial<DefinitionOptions>;
}

export function analyseTopology(labYaml: string, options: RequestOptions): Promise<TopologyAnalysis> {
  return request("POST", "/api/lablet-definitions/analyse", { lab_yaml: labYaml }, options);
}

export function createDefinition(
  definition: DefinitionRequest,
  options: RequestOptions,
): Promise<LabletDefinitionView> {
  return request("POST", "/api/lablet-definitions", definition, options);
}
