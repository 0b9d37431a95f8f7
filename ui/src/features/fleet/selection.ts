/** The workers that the user has selected in the list. */

import { computed, signal } from "@preact/signals";
import { rows } from "./view";

export const selection = signal<ReadonlySet<string>>(new Set());

/** The worker that was selected or left out last: with Shift the choice covers all up to the next one. */
let anchor: string | null = null;

/** Select the worker, or leave it out; with `isRange` also all that are listed between it and the one before. */
export function toggleSelected(id: string, isRange = false): void {
  const isSelected = !selection.peek().has(id);
  const next = new Set(selection.peek());
  for (const each of isRange ? between(anchor, id) : [id]) {
    if (isSelected) next.add(each);
    else next.delete(each);
  }
  anchor = id;
  selection.value = next;
}

function between(from: string | null, to: string): readonly string[] {
  const ids = rows.peek().map(({ id }) => id);
  const [start, end] = [ids.indexOf(from ?? to), ids.indexOf(to)].sort((a, b) => a - b) as [number, number];
  return start < 0 ? [to] : ids.slice(start, end + 1);
}

/** Select exactly the listed workers, or none. */
export function selectListed(isSelected: boolean): void {
  selection.value = new Set(isSelected ? rows.peek().map(({ id }) => id) : []);
}

export function clearSelection(): void {
  anchor = null;
  selection.value = new Set();
}

/** The selected workers that the list shows: nothing is done to a worker that is not visible. */
export const selectedEntries = computed(() => rows.value.filter(({ id }) => selection.value.has(id)));
