/** Fetches what the server remembers of a worker's load, once, for workers that somebody looks at. */

import * as api from "./api";
import { applyHistory } from "./live";

/** The browser keeps six connections to a server, and the stream has one of them. */
const AT_ONCE = 3;

const asked = new Set<string>();
const waiting: string[] = [];
let running = 0;

export function wantHistory(workerId: string): void {
  if (asked.has(workerId)) return;
  asked.add(workerId);
  waiting.push(workerId);
  fetchNext();
}

/** After a break in the stream everything may have moved on. */
export function forgetHistory(): void {
  asked.clear();
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
    asked.delete(workerId); // the chart fills from the stream meanwhile
  }
}
