import { FILTER_ID } from "../../app/keyboard";
import { formatCount } from "../../kit/format";
import { Glyph } from "../../kit/icons";
import { GROUPS, type SortColumn } from "../worker/model";
import { COLUMNS } from "./columns";
import { chosenGroups, filterText, listableCount, rows, showTerminated, sort, sortBy, toggleGroup } from "./view";
import { ViewMenu } from "./view-menu";

export function FleetToolbar() {
  return (
    <div class="toolbar" role="search">
      <FilterBox />
      <div class="chips" role="group" aria-label="Status">
        {GROUPS.map((group) => (
          <button
            key={group.id}
            type="button"
            class="chip"
            data-color={group.color}
            aria-pressed={chosenGroups.value.has(group.id)}
            onClick={() => toggleGroup(group.id)}
          >
            <span class="dot" />
            {group.label}
          </button>
        ))}
      </div>
      <div class="toolbar-end">
        <SortSelect />
        <label class="switch">
          <input
            type="checkbox"
            role="switch"
            checked={showTerminated.value}
            onChange={(event) => {
              showTerminated.value = event.currentTarget.checked;
            }}
          />
          Show terminated
        </label>
        <ViewMenu />
        <Shown />
      </div>
    </div>
  );
}

function FilterBox() {
  return (
    <div class="filter">
      <Glyph name="search" />
      <input
        id={FILTER_ID}
        type="search"
        placeholder="Filter by name, id, address or template"
        aria-label="Filter workers"
        autocomplete="off"
        spellcheck={false}
        value={filterText.value}
        onInput={(event) => {
          filterText.value = event.currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          filterText.value = "";
          event.currentTarget.blur();
        }}
      />
      <kbd>/</kbd>
    </div>
  );
}

/** Cards have no column heads to click. */
function SortSelect() {
  return (
    <select
      class="select sort-select"
      aria-label="Sort by"
      value={sort.value.column}
      onChange={(event) => sortBy(event.currentTarget.value as SortColumn)}
    >
      {COLUMNS.filter((column) => column.sort !== null).map((column) => (
        <option key={column.id} value={column.id}>
          {column.label}
        </option>
      ))}
    </select>
  );
}

function Shown() {
  const shown = rows.value.length;
  const all = listableCount.value;
  return (
    <span class="shown">
      {shown === all ? formatCount(all, "worker") : `${shown.toLocaleString("en-US")} of ${formatCount(all, "worker")}`}
    </span>
  );
}
