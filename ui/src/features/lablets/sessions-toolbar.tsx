import { SESSION_FILTER_ID } from "../../app/keyboard";
import type { SessionStatus } from "../../generated/api";
import { SESSION_STATUSES } from "../../generated/rules";
import { formatCount } from "../../kit/format";
import { Glyph } from "../../kit/icons";
import { type Choice, choicesOf, isTile, type SortColumn, sessionInfo } from "./model";
import { COLUMNS, sortBy } from "./sessions-table";
import { allSessions, changeFilter, filter, rows } from "./store";

export function SessionsToolbar() {
  const known = allSessions.value;
  const { owner, definition, batch } = filter.value;
  return (
    <div class="toolbar sessions-toolbar" role="search">
      <FilterBox />
      <StatusSelect />
      <Select
        label="Definition"
        value={definition}
        all="All definitions"
        choices={choicesOf(known, "definition")}
        onChange={(value) => changeFilter({ definition: value })}
      />
      <Select
        label="Class"
        value={batch}
        all="All classes"
        choices={choicesOf(known, "batch")}
        onChange={(value) => changeFilter({ batch: value })}
      />
      <Select
        label="Owner"
        value={owner}
        all="All owners"
        choices={choicesOf(known, "owner")}
        onChange={(value) => changeFilter({ owner: value })}
      />
      <div class="toolbar-end">
        <SortSelect />
        <span class="shown">{formatCount(rows.value.length, "session")}</span>
      </div>
    </div>
  );
}

function FilterBox() {
  return (
    <div class="filter">
      <Glyph name="search" />
      <input
        id={SESSION_FILTER_ID}
        type="search"
        placeholder="Owner, definition, class, id"
        aria-label="Filter lablet sessions"
        autocomplete="off"
        spellcheck={false}
        value={filter.value.text}
        onInput={(event) => changeFilter({ text: event.currentTarget.value })}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          changeFilter({ text: "" });
          event.currentTarget.blur();
        }}
      />
      <kbd>/</kbd>
    </div>
  );
}

function StatusSelect() {
  const { show } = filter.value;
  return (
    <select
      class="select select-small"
      aria-label="Status"
      value={isTile(show) ? `is-${show}` : show}
      onChange={({ currentTarget }) => changeFilter({ show: currentTarget.value as SessionStatus | "all" | "live" })}
    >
      <option value="live">Not ended</option>
      <option value="all">All, ended too</option>
      {isTile(show) && <option value={`is-${show}`}>As chosen above</option>}
      {SESSION_STATUSES.map((status) => (
        <option key={status} value={status}>
          {sessionInfo(status).label}
        </option>
      ))}
    </select>
  );
}

interface SelectProps {
  readonly label: string;
  readonly value: string;
  readonly all: string;
  readonly choices: readonly Choice[];
  readonly onChange: (value: string) => void;
}

function Select({ label, value, all, choices, onChange }: SelectProps) {
  const isKnown = value === "" || choices.some((choice) => choice.value === value);
  return (
    <select
      class="select select-small"
      aria-label={label}
      value={value}
      onChange={({ currentTarget }) => onChange(currentTarget.value)}
    >
      <option value="">{all}</option>
      {!isKnown && <option value={value}>{value}</option>}
      {choices.map((choice) => (
        <option key={choice.value} value={choice.value}>
          {choice.label}
        </option>
      ))}
    </select>
  );
}

/** Cards have no column heads to click. */
function SortSelect() {
  return (
    <select
      class="select sort-select"
      aria-label="Sort by"
      value={filter.value.sort.column}
      onChange={(event) => sortBy(event.currentTarget.value as SortColumn)}
    >
      {COLUMNS.map((column) => (
        <option key={column.id} value={column.id}>
          {column.label}
        </option>
      ))}
    </select>
  );
}
