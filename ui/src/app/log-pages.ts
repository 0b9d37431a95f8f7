/** Pages of a log that is read newest first. */

interface Entry {
  /** Ids sort by time. */
  readonly id: string;
}

export interface LogPage<E extends Entry> {
  readonly items: readonly E[];
  /** Where the next page begins; null if this is the last. */
  readonly next: string | null;
}

/**
 * The log after its newest page was fetched again, including older pages that were loaded. A page that does
 * not reach the known entries would leave a gap: it then replaces them.
 */
export function withNewest<E extends Entry>(known: LogPage<E> | null, newest: LogPage<E>): LogPage<E> {
  const [first, oldest] = [known?.items[0], newest.items.at(-1)];
  if (known === null || first === undefined || oldest === undefined || newest.next === null) return newest;
  const isJoined = oldest.id <= first.id;
  const older = known.items.filter(({ id }) => id < oldest.id);
  if (!isJoined || older.length === 0) return newest;
  return { items: [...newest.items, ...older], next: known.next };
}

export function withOlder<E extends Entry>(known: LogPage<E>, older: LogPage<E>): LogPage<E> {
  const oldest = known.items.at(-1)?.id;
  const unseen = older.items.filter(({ id }) => oldest === undefined || id < oldest);
  return { items: [...known.items, ...unseen], next: older.next };
}

/** The entries of a page that are newer than all that are shown. */
export function countNewer<E extends Entry>(shown: LogPage<E> | null, fetched: LogPage<E> | null): number {
  const first = shown?.items[0]?.id ?? "";
  return shown === null ? 0 : (fetched?.items.filter(({ id }) => id > first).length ?? 0);
}
