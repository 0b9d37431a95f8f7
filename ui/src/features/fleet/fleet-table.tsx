/**
 * The fleet as a table, or as cards where it is narrow. Built of divs with table roles: a row that
 * is not visible is skipped by the browser (content-visibility), which real table rows do not allow.
 */

import { useEffect, useRef } from "preact/hooks";
import { useProgressiveCount } from "../../kit/progressive";
import { CHOOSABLE, COLUMNS } from "./columns";
import { selectedEntries, selectListed } from "./selection";
import { columns, density, isShown, rows, sort, sortBy } from "./view";
import { WorkerRow } from "./worker-row";

export function FleetTable() {
  const list = rows.value;
  const drawn = useProgressiveCount(list.length);
  return (
    <div class="fleet">
      <div
        class="table"
        role="table"
        aria-label="Workers"
        aria-rowcount={list.length + 1}
        data-without={columns.value === null ? undefined : hiddenColumns()}
        data-density={density.value}
      >
        <div role="rowgroup" class="table-head">
          <HeadRow />
        </div>
        <div role="rowgroup">
          {list.slice(0, drawn).map((entry) => (
            <WorkerRow key={entry.id} entry={entry} />
          ))}
        </div>
      </div>
    </div>
  );
}

function hiddenColumns(): string {
  return CHOOSABLE.flatMap(({ id }) => (isShown(id) ? [] : [id])).join(" ");
}

function HeadRow() {
  const { column: sorted, descending } = sort.value;
  return (
    <div role="row" class="row row-head">
      <div role="columnheader" class="cell cell-check">
        <SelectAll />
      </div>
      {COLUMNS.filter(({ id }) => isShown(id)).map((column) => {
        if (column.sort === null) {
          return (
            <div key={column.id} role="columnheader" class={`cell cell-${column.id} head-plain`}>
              {column.label}
            </div>
          );
        }
        const by = column.sort;
        const order = descending ? "descending" : "ascending";
        return (
          <div
            key={column.id}
            role="columnheader"
            class={`cell cell-${column.id}`}
            aria-sort={by === sorted ? order : "none"}
          >
            <button type="button" class="sort" onClick={() => sortBy(by)}>
              {column.label}
              <span class="sort-arrow" aria-hidden="true" />
            </button>
          </div>
        );
      })}
      <div role="columnheader" class="cell cell-actions">
        <span class="visually-hidden">Actions</span>
      </div>
    </div>
  );
}

function SelectAll() {
  const box = useRef<HTMLInputElement>(null);
  const selected = selectedEntries.value.length;
  const isAll = selected > 0 && selected === rows.value.length;
  useEffect(() => {
    if (box.current !== null) box.current.indeterminate = selected > 0 && !isAll;
  }, [selected, isAll]);
  return (
    <label class="check">
      <input
        ref={box}
        type="checkbox"
        aria-label="Select all listed workers"
        checked={isAll}
        onChange={() => selectListed(!isAll)}
      />
    </label>
  );
}

const SKELETON_ROWS = 6;

export function SkeletonTable() {
  return (
    <div class="fleet skeleton" aria-busy="true">
      <span class="visually-hidden">Loading the fleet</span>
      <div class="table">
        {Array.from({ length: SKELETON_ROWS }, (_, index) => (
          <div key={index} class="row">
            <div class="cell cell-check" />
            {COLUMNS.map((column) => (
              <div key={column.id} class={`cell cell-${column.id}`}>
                <span class="placeholder" />
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}
