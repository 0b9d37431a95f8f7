/** The topologies of definitions. A version of a definition never changes: each is fetched once. */

import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import * as api from "../../app/lablet-api";
import type { Topology } from "./layout";

const MAX_KEPT = 50;

const known = new Map<string, Signal<Topology | null>>();

/** The topology of a definition; null until it is loaded, and if it cannot be. */
export function topologyOf(definitionId: string): ReadonlySignal<Topology | null> {
  let found = known.get(definitionId);
  if (found === undefined) {
    found = signal<Topology | null>(null);
    known.set(definitionId, found);
    void fetchInto(found, definitionId);
    const [oldest] = known.keys();
    if (known.size > MAX_KEPT && oldest !== undefined) known.delete(oldest);
  }
  return found;
}

async function fetchInto(target: Signal<Topology | null>, definitionId: string): Promise<void> {
  try {
    target.value = await api.getAnalysis(definitionId);
  } catch {
    known.delete(definitionId); // the states are still listed
  }
}
