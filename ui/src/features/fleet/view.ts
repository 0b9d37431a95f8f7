/** The view of the fleet that the user chose: filter, groups, sorting, columns, density, and the resulting rows. */

import { batch, computed, signal } from "@preact/signals";
import { entries, type WorkerEntry } from "../../app/store";
import { compareWorkers, type GroupId, matchesText, type Sort, type SortColumn, statusInfo } from "../worker/model";
import { CHOOSABLE, type ColumnId, type Density } from "./columns";
import type { FleetView } from "./filter";

export const filterText = signal("");
export const chosenGroups = signal<ReadonlySet<GroupId>>(new Set());
export const showTerminated = signal(false);
export const sort = signal<Sort>({ column: "name", descending: false });
/** Null: as many as have space. */
export const columns = signal<ReadonlySet<ColumnId> | null>(null);
export const density = signal<Density>("comfortable");

export const countsByGroup = computed<ReadonlyMap<GroupId, number>>(() => {
  const counts = new Map<GroupId, number>();
  for (const entry of entries.value.values()) {
    const { group } = statusInfo(entry.worker.value.status);
    counts.set(group, (counts.get(group) ?? 0) + 1);
  }
  return counts;
});

/** The number of workers listed without a filter. */
export const listableCount = computed(
  () => entries.value.size - (showTerminated.value ? 0 : (countsByGroup.value.get("terminated") ?? 0)),
);

export const view = computed<FleetView>(() => ({
  text: filterText.value,
  groups: chosenGroups.value,
  isWithTerminated: showTerminated.value,
  sort: sort.value,
  columns: columns.value,
  density: density.value,
}));

export function changeView(next: FleetView): void {
  batch(() => {
    filterText.value = next.text;
    chosenGroups.value = next.groups;
    showTerminated.value = next.isWithTerminated;
    sort.value = next.sort;
    columns.value = next.columns;
    density.value = next.density;
  });
}

export function isShown(column: ColumnId): boolean {
  return column === "name" || (columns.value?.has(column) ?? true);
}

export function toggleColumn(column: ColumnId): void {
  const next = new Set(columns.value ?? CHOOSABLE.map(({ id }) => id));
  if (!next.delete(column)) next.add(column);
  columns.value = next.size === CHOOSABLE.length ? null : next;
}

let lastRows: readonly WorkerEntry[] = [];

/** The same array as before unless a row was added, removed or moved: only then does the list render. */
export const rows = computed<readonly WorkerEntry[]>(() => {
  const order = compareWorkers(sort.value);
  const next = [...entries.value.values()].filter(isListed).sort((a, b) => order(a.worker.value, b.worker.value));
  const isSame = next.length === lastRows.length && next.every((entry, index) => entry === lastRows[index]);
  if (!isSame) lastRows = next;
  return lastRows;
});

function isListed(entry: WorkerEntry): boolean {
  const worker = entry.worker.value;
  const { group } = statusInfo(worker.status);
  if (group === "terminated") return showTerminated.value && matchesText(worker, filterText.value);
  if (chosenGroups.value.size > 0 && !chosenGroups.value.has(group)) return false;
  return matchesText(worker, filterText.value);
}

export function toggleGroup(group: GroupId): void {
  const next = new Set(chosenGroups.value);
  if (!next.delete(group)) next.add(group);
  chosenGroups.value = next;
}

export function sortBy(column: SortColumn): void {
  const current = sort.value;
  sort.value = { column, descending: current.column === column && !current.descending };
}

export function clearFilters(): void {
  filterText.value = "";
  chosenGroups.value = new Set();
}
