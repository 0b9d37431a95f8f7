/** Fetches the recorded load of a worker once, when it becomes visible. */

import * as api from "../../app/api";
import { applyHistory } from "./live";

/** A browser opens at most six connections to a server, and the stream uses one of them. */
const AT_ONCE = 3;

const requested = new Set<string>();
const waiting: string[] = [];
let running = 0;

export function requestHistory(workerId: string): void {
  if (requested.has(workerId)) return;
  requested.add(workerId);
  waiting.push(workerId);
  fetchNext();
}

/** Fetch everything again: the stream was interrupted, and the load may have changed. */
export function resetHistory(): void {
  requested.clear();
  waiting.length = 0;
}

function fetchNext(): void {
  while (running < AT_ONCE) {
    const workerId = waiting.shift();
    if (workerId === undefined) return;
    running += 1;
    void fetchOne(workerId).finally(() => {
      running -= 1;
      fetchNext();
    });
  }
}

async function fetchOne(workerId: string): Promise<void> {
  try {
    applyHistory(workerId, await api.getResources(workerId));
  } catch {
    requested.delete(workerId); // the stream fills the chart meanwhile
  }
}
