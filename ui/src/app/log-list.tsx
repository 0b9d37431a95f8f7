/** A log that is read newest first: kept current while it is shown, older entries on demand. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Spinner } from "../kit/icons";
import { countNewer, type LogPage, withNewest, withOlder } from "./log-pages";
import { startPolling } from "./polling";
import { showError } from "./toasts";

const INTERVAL = { everyMs: 30_000, afterChangeMs: 1_000 };

interface LogListProps<E extends { readonly id: string }> {
  /** What the entries are, for assistive technology. */
  readonly label: string;
  /** What is said when older entries cannot be loaded. */
  readonly failure: string;
  readonly load: (before: string | null) => Promise<LogPage<E>>;
  readonly empty: ComponentChildren;
  readonly render: (entry: E) => ComponentChildren;
}

/** Give it a `key` of what `load` asks for: another question starts anew. */
export function LogList<E extends { readonly id: string }>({ label, failure, load, empty, render }: LogListProps<E>) {
  const log = useSignal<LogPage<E> | null>(null);
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);
  const newer = useSignal<LogPage<E> | null>(null);
  const list = useRef<HTMLDivElement>(null);

  /** Entries that arrive would move what the user reads or is about to press: they wait then. */
  function isInUse(): boolean {
    return list.current?.matches(":hover, :focus-within") === true || window.scrollY > 0;
  }

  function showNewer(): void {
    if (newer.peek() !== null) log.value = newer.peek();
    newer.value = null;
  }

  useEffect(() => {
    let isCurrent = true;
    const stop = startPolling(() => {
      load(null).then(
        (newest) => {
          if (!isCurrent) return;
          newer.value = withNewest(log.peek(), newest);
          if (countNewer(log.peek(), newer.peek()) === 0 || !isInUse()) showNewer();
          problem.value = null;
        },
        (error: unknown) => {
          if (isCurrent) problem.value = error instanceof Error ? error.message : String(error);
        },
      );
    }, INTERVAL);
    return () => {
      isCurrent = false;
      stop();
    };
  }, []);

  useEffect(() => {
    function onLeave(): void {
      if (!isInUse()) showNewer();
    }
    document.addEventListener("mouseover", onLeave);
    return () => document.removeEventListener("mouseover", onLeave);
  }, []);

  async function loadOlder(shown: LogPage<E>): Promise<void> {
    isBusy.value = true;
    try {
      const older = await load(shown.next);
      log.value = withOlder(log.peek() ?? shown, older);
      newer.value = null;
    } catch (error) {
      showError(failure, error);
    } finally {
      isBusy.value = false;
    }
  }

  const known = log.value;
  if (known === null) return problem.value === null ? <Skeleton /> : <p class="panel-note">{problem.value}</p>;
  const waiting = countNewer(known, newer.value);
  return (
    <div ref={list} class="log">
      {problem.value !== null && (
        <p class="panel-note" role="status">
          Newer entries could not be fetched: {problem.value}
        </p>
      )}
      {known.items.length === 0 && empty}
      {waiting > 0 && (
        <div class="log-newer">
          <button type="button" class="button button-primary button-small" onClick={showNewer}>
            Show {waiting} new
          </button>
        </div>
      )}
      {known.items.length > 0 && (
        <ol class="audit" aria-label={label} data-testid="audit">
          {known.items.map(render)}
        </ol>
      )}
      {known.next !== null && (
        <button type="button" class="button audit-more" aria-busy={isBusy.value} onClick={() => void loadOlder(known)}>
          {isBusy.value && <Spinner />}
          Show older
        </button>
      )}
    </div>
  );
}

function Skeleton() {
  return (
    <div class="timeline-skeleton" aria-busy="true">
      <span class="placeholder" />
      <span class="placeholder" />
      <span class="placeholder" />
    </div>
  );
}
