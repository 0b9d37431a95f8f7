import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../../app/api";
import { applyWorkers, isLoaded } from "../../app/store";

/** Fetch a worker that is not in the fleet list, to which a link may lead; returns why that failed. */
export function useFetchedWorker(id: string): ReadonlySignal<string | null> {
  const problem = useSignal<string | null>(null);
  const hasFleet = isLoaded.value;
  useEffect(() => {
    if (!hasFleet) return;
    api.getWorker(id).then(
      (worker) => applyWorkers([worker]),
      (error: unknown) => {
        problem.value = api.messageOf(error);
      },
    );
  }, [id, hasFleet]);
  return problem;
}
