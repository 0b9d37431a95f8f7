/** All lablet sessions: tiles that count and filter, the list, and what can be done with several of them. */

import { effect, useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { openSessionsDialog } from "../../app/commands";
import { classSheetHref, isSessionList, newSessionHref, query, replaceQuery } from "../../app/router";
import { denialFor } from "../../app/session";
import { formatCount } from "../../kit/format";
import { Glyph } from "../../kit/icons";
import { canEnd, canExtend, filterOf, isFiltered, NO_FILTER, queryOf, TILES, type Tile } from "./model";
import { SessionsTable, SkeletonTable } from "./sessions-table";
import { SessionsToolbar } from "./sessions-toolbar";
import {
  areLoaded,
  changeFilter,
  clearSelection,
  filter,
  loadProblem,
  loadSessions,
  rows,
  selectedSessions,
  sessions,
  tileCounts,
  wantSessions,
} from "./store";

/** The URL follows the filter after this time, so that typing does not write it with every key. */
const URL_DELAY_MS = 250;

export function SessionsPage() {
  useEffect(wantSessions, []);
  useFilterInUrl();
  return (
    <>
      <div class="page-head">
        <h1>Sessions</h1>
        <div class="page-actions">
          <SheetLink />
          <NewSessionLink />
        </div>
      </div>
      <Tiles />
      <LoadNotice />
      <SessionList />
      <Shortcuts />
      <SelectionBar />
    </>
  );
}

// At once with the URL, not after the page is drawn: what a user types then would be overwritten.
effect(() => {
  if (isSessionList.value) filter.value = filterOf(query.value);
});

function useFilterInUrl(): void {
  useSignalEffect(() => {
    const text = queryOf(filter.value);
    const timer = window.setTimeout(() => replaceQuery(text), URL_DELAY_MS);
    return () => window.clearTimeout(timer);
  });
  useEffect(() => clearSelection, []);
}

/** The access sheet of the class that is chosen in the list. */
function SheetLink() {
  const { batch } = filter.value;
  if (batch === "") return null;
  return (
    <a class="button" href={classSheetHref(batch)}>
      Access sheet
    </a>
  );
}

export function NewSessionLink() {
  const denial = denialFor("book");
  if (denial !== null) {
    return (
      <button type="button" class="button button-primary" disabled title={denial}>
        <Glyph name="plus" />
        New session
      </button>
    );
  }
  return (
    <a class="button button-primary" href={newSessionHref()} title="New session or class (c)">
      <Glyph name="plus" />
      New session
    </a>
  );
}

function Tiles() {
  return (
    <section class="summary tiles" aria-label="Sessions by state" aria-busy={!areLoaded.value}>
      {TILES.map((tile) => (
        <TileButton key={tile.id} tile={tile} />
      ))}
    </section>
  );
}

function TileButton({ tile: { id, label, color } }: { tile: Tile }) {
  const count = tileCounts.value.get(id) ?? 0;
  const isChosen = filter.value.show === id;
  return (
    <button
      type="button"
      class="tile"
      data-tile={id}
      data-color={color}
      data-empty={count === 0}
      aria-pressed={isChosen}
      onClick={() => changeFilter({ show: isChosen ? "live" : id })}
    >
      <span class="tile-label">
        <span class="dot" />
        {label}
      </span>
      <span class="tile-count">
        {areLoaded.value ? count.toLocaleString("en-US") : <span class="placeholder placeholder-number" />}
      </span>
    </button>
  );
}

/** The list is shown with what is known, so an error is a note above it. */
function LoadNotice() {
  const problem = loadProblem.value;
  if (problem === null || (!areLoaded.value && sessions.value.size === 0)) return null;
  return (
    <section class="notice notice-line" data-color="orange" role="status">
      <p>The list could not be fetched again: {problem}</p>
      <button type="button" class="button button-small" onClick={() => void loadSessions()}>
        Try again
      </button>
    </section>
  );
}

function SessionList() {
  if (!areLoaded.value && sessions.value.size === 0) {
    return loadProblem.value === null ? <SkeletonTable /> : <NotLoaded problem={loadProblem.value} />;
  }
  if (sessions.value.size === 0) return <NoSessions />;
  return (
    <>
      <SessionsToolbar />
      {rows.value.length > 0 ? <SessionsTable /> : <NoMatch />}
    </>
  );
}

function NotLoaded({ problem }: { problem: string }) {
  return (
    <section class="empty" role="alert">
      <h2>The sessions could not be loaded</h2>
      <p>{problem}</p>
      <button type="button" class="button" onClick={() => void loadSessions()}>
        Try again
      </button>
    </section>
  );
}

function NoSessions() {
  return (
    <section class="empty">
      <h2>No sessions yet</h2>
      <p>
        A lablet session is one run of a lab on a worker, now or in a timeslot. Book one, or one for every seat of a
        class: the scheduler finds the workers and starts what is missing.
      </p>
      <NewSessionLink />
    </section>
  );
}

function NoMatch() {
  const hidden = sessions.value.size;
  return (
    <section class="empty empty-small">
      <h2>{isFiltered(filter.value) ? "No matching sessions" : "Every session has ended"}</h2>
      <button
        type="button"
        class="button"
        onClick={() => changeFilter(isFiltered(filter.value) ? { ...NO_FILTER } : { show: "all" })}
      >
        {isFiltered(filter.value) ? "Clear the filters" : `Show ${formatCount(hidden, "ended session")}`}
      </button>
    </section>
  );
}

/** At the foot of the window: rows that come or go do not move its buttons. */
function SelectionBar() {
  const selected = selectedSessions.value;
  const endable = selected.filter(canEnd);
  const extendable = selected.filter(canExtend);
  if (selected.length === 0) return null;
  const ids = (list: typeof selected) => list.map(({ id }) => id);
  return (
    <section class="selection-bar" aria-label="Selection">
      <span class="selection-count">{selected.length.toLocaleString("en-US")} selected</span>
      <button
        type="button"
        class="button button-small"
        disabled={extendable.length === 0}
        title={extendable.length === 0 ? "None of them has a timeslot to extend." : ""}
        onClick={() => openSessionsDialog("extend-sessions", ids(extendable))}
      >
        Extend…
      </button>
      <button
        type="button"
        class="button button-small button-danger"
        disabled={endable.length === 0}
        title={endable.length === 0 ? "All of them have ended or are ending." : ""}
        onClick={() => openSessionsDialog("end-sessions", ids(endable))}
      >
        End…
      </button>
      <button type="button" class="text-button" onClick={clearSelection}>
        Clear
      </button>
    </section>
  );
}

function Shortcuts() {
  return (
    <section class="shortcuts" aria-label="Keyboard shortcuts">
      <span>
        <kbd>/</kbd> filter
      </span>
      <span>
        <kbd>c</kbd> new session
      </span>
      <span>
        <kbd>j</kbd>
        <kbd>k</kbd> move
      </span>
      <span>
        <kbd>x</kbd> select
      </span>
      <span>
        <kbd>Enter</kbd> open
      </span>
      <span>
        <kbd>Esc</kbd> clear the selection
      </span>
    </section>
  );
}
