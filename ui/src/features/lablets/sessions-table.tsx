/** The lablet sessions as a table, or as cards where it is narrow; built as the fleet's table is. */

import { useEffect, useRef } from "preact/hooks";
import { useProgressiveCount } from "../../kit/progressive";
import type { SortColumn } from "./model";
import { SessionRow } from "./session-row";
import { changeFilter, filter, rows, selectedSessions, selectListed } from "./store";

interface Column {
  readonly id: SortColumn;
  readonly cell: string;
  readonly label: string;
}

export const COLUMNS: readonly Column[] = [
  { id: "session", cell: "session", label: "Session" },
  { id: "status", cell: "state", label: "State" },
  { id: "owner", cell: "owner", label: "Owner" },
  { id: "worker", cell: "worker", label: "Worker" },
  { id: "slot", cell: "slot", label: "Timeslot" },
  { id: "ends", cell: "left", label: "Time" },
];

export function SessionsTable() {
  const list = rows.value;
  const drawn = useProgressiveCount(list.length);
  return (
    <div class="session-list">
      <div class="table" role="table" aria-label="Lablet sessions" aria-rowcount={list.length + 1}>
        <div role="rowgroup" class="table-head">
          <HeadRow />
        </div>
        <div role="rowgroup">
          {list.slice(0, drawn).map((entry) => (
            <SessionRow key={entry.id} entry={entry} />
          ))}
        </div>
      </div>
    </div>
  );
}

function HeadRow() {
  return (
    <div role="row" class="row row-head">
      <div role="columnheader" class="cell cell-check">
        <SelectAll />
      </div>
      {COLUMNS.map((column) => (
        <HeadCell key={column.id} column={column} />
      ))}
      <div role="columnheader" class="cell cell-actions">
        <span class="visually-hidden">Actions</span>
      </div>
    </div>
  );
}

function HeadCell({ column: { id, cell, label } }: { column: Column }) {
  const { column: sorted, descending } = filter.value.sort;
  const order = descending ? "descending" : "ascending";
  return (
    <div role="columnheader" class={`cell cell-${cell}`} aria-sort={id === sorted ? order : "none"}>
      <button type="button" class="sort" onClick={() => sortBy(id)}>
        {label}
        <span class="sort-arrow" aria-hidden="true" />
      </button>
    </div>
  );
}

export function sortBy(column: SortColumn): void {
  const { sort } = filter.peek();
  changeFilter({ sort: { column, descending: sort.column === column && !sort.descending } });
}

function SelectAll() {
  const box = useRef<HTMLInputElement>(null);
  const selected = selectedSessions.value.length;
  const isAll = selected > 0 && selected === rows.value.length;
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = selected > 0 && !isAll;
  }, [selected, isAll]);
  return (
    <label class="check">
      <input
        ref={box}
        type="checkbox"
        aria-label="Select all listed sessions"
        checked={isAll}
        onChange={(event) => selectListed(event.currentTarget.checked)}
      />
    </label>
  );
}

const SKELETON_ROWS = 6;

export function SkeletonTable() {
  return (
    <div class="session-list skeleton" aria-busy="true">
      <span class="visually-hidden">Loading the lablet sessions</span>
      <div class="table">
        {Array.from({ length: SKELETON_ROWS }, (_, index) => (
          <div key={index} class="row">
            <div class="cell cell-check" />
            {COLUMNS.map(({ id, cell }) => (
              <div key={id} class={`cell cell-${cell}`}>
                <span class="placeholder" />
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}
