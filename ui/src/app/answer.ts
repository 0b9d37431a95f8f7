/** An answer of the API that a component shows, fetched again when its key changes. */

import { type ReadonlySignal, useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { messageOf } from "./api";
import { type PollInterval, startPolling } from "./polling";

export interface Answer<T> {
  /** The last answer; it stays while the next is fetched. */
  readonly value: ReadonlySignal<T | null>;
  /** Why the last request failed; null after one that did not. */
  readonly problem: ReadonlySignal<string | null>;
}

/** Fetch at once and whenever the key changes; the answer to an older key is dropped. */
export function useAnswer<T>(key: string, fetchData: () => Promise<T>): Answer<T> {
  const { value, problem, fetchNow } = useFetcher(fetchData);
  useEffect(fetchNow, [key]);
  return { value, problem };
}

/** The same, and again at an interval and after changes, while the key is not null. */
export function usePolledAnswer<T>(
  key: string | null,
  fetchData: () => Promise<T>,
  interval: PollInterval,
  changes: ReadonlySignal<number>,
): Answer<T> {
  const { value, problem, fetchNow } = useFetcher(fetchData);
  useEffect(() => {
    if (key === null) return;
    let drop: () => void = () => undefined;
    const stop = startPolling(
      () => {
        drop();
        drop = fetchNow();
      },
      interval,
      changes,
    );
    return () => {
      stop();
      drop();
    };
  }, [key]);
  return { value, problem };
}

interface Fetcher<T> extends Answer<T> {
  /** Returns how to drop the answer. */
  readonly fetchNow: () => () => void;
}

function useFetcher<T>(fetchData: () => Promise<T>): Fetcher<T> {
  const value = useSignal<T | null>(null);
  const problem = useSignal<string | null>(null);

  function fetchNow(): () => void {
    let isCurrent = true;
    fetchData().then(
      (answer) => {
        if (!isCurrent) return;
        value.value = answer;
        problem.value = null;
      },
      (error: unknown) => {
        if (isCurrent) problem.value = messageOf(error);
      },
    );
    return () => {
      isCurrent = false;
    };
  }

  return { value: useComputed(() => value.value), problem: useComputed(() => problem.value), fetchNow };
}
