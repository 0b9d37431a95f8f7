/** The routes about the labs on all workers. */

import type {
  LabAction,
  LabAdoptionRequest,
  LabPage,
  LabRemoval,
  LabView,
  ListedWorker,
  WorkerView,
} from "../generated/api";
import { request } from "./api";

export interface AllLabs {
  readonly labs: readonly LabView[];
  /** The workers that run, with the time of their last listing. */
  readonly workers: readonly ListedWorker[];
}

const FIRST_PAGE = "/api/labs?limit=500";

export async function listAllLabs(): Promise<AllLabs> {
  const first = await request<LabPage>("GET", FIRST_PAGE);
  const labs = [...first.items];
  for (let next = first.next; next !== null; ) {
    const page: LabPage = await request("GET", `${FIRST_PAGE}&after=${encodeURIComponent(next)}`);
    labs.push(...page.items);
    next = page.next;
  }
  return { labs, workers: first.workers };
}

function labsPath(workerId: string): string {
  return `/api/workers/${encodeURIComponent(workerId)}/labs`;
}

function actionPath(lab: LabView, action: LabAction): string {
  return `${labsPath(lab.worker_id)}/${encodeURIComponent(lab.lab_id)}/${action}`;
}

export function requestLab(lab: LabView, action: Exclude<LabAction, "adopt" | "remove">): Promise<LabView> {
  return request("POST", actionPath(lab, action));
}

export function adoptLab(lab: LabView, adoption: LabAdoptionRequest): Promise<LabView> {
  return request("POST", actionPath(lab, "adopt"), adoption);
}

export function removeLab(lab: LabView, removal: LabRemoval): Promise<LabView> {
  return request("POST", actionPath(lab, "remove"), removal);
}

/** List every lab of the worker now. */
export function discoverLabs(workerId: string): Promise<WorkerView> {
  return request("POST", `${labsPath(workerId)}/discover`);
}
