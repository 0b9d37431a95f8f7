/** The routes about the labs on all workers. */

import type { LabAction, LabPage, LabRemoval, LabView, ListedWorker, WorkerView } from "../generated/api";
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

export function requestLab(lab: LabView, action: LabAction, removal: LabRemoval = {}): Promise<LabView> {
  const path = `${labsPath(lab.worker_id)}/${encodeURIComponent(lab.lab_id)}/${action}`;
  return request("POST", path, action === "remove" ? removal : undefined);
}

/** List every lab of the worker now. */
export function discoverLabs(workerId: string): Promise<WorkerView> {
  return request("POST", `${labsPath(workerId)}/discover`);
}
