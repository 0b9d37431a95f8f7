import { effect, useComputed, useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { openCreateDialog, openDialog } from "../../app/commands";
import { fleetQuery, isFleetList, PAGES, query, replaceQuery } from "../../app/router";
import { denialFor } from "../../app/session";
import { entries, isLoaded } from "../../app/store";
import { Glyph } from "../../kit/icons";
import { Debts } from "../license/debts-notice";
import { ACTION_LABEL } from "../worker/model";
import { BULK_ACTIONS, type BulkAction, planOf } from "./bulk";
import { NoMatch, NoWorkers } from "./empty";
import { queryOfView, viewFrom } from "./filter";
import { FleetTable, SkeletonTable } from "./fleet-table";
import { FleetToolbar } from "./fleet-toolbar";
import { clearSelection, selectedEntries } from "./selection";
import { Summary } from "./summary";
import { changeView, listableCount, rows, view } from "./view";

/** The URL follows the view after this time, so that typing does not write it with every key. */
const URL_DELAY_MS = 250;

// At once with the URL, not after the page is drawn: what a user types then would be overwritten.
effect(() => {
  if (isFleetList.value) changeView(viewFrom(query.value));
});

function useViewInUrl(): void {
  useSignalEffect(() => {
    const text = queryOfView(view.value);
    fleetQuery.value = text;
    const timer = window.setTimeout(() => {
      if (isFleetList.peek()) replaceQuery(text);
    }, URL_DELAY_MS);
    return () => window.clearTimeout(timer);
  });
}

export function Fleet() {
  useViewInUrl();
  return (
    <>
      <div class="page-head">
        <h1>Fleet</h1>
        <CreateButton />
      </div>
      <Summary />
      <Debts />
      <FleetList />
      <Shortcuts />
      <SelectionBar />
    </>
  );
}

function CreateButton() {
  const denial = denialFor("create");
  return (
    <button
      type="button"
      class="button button-primary"
      disabled={denial !== null}
      title={denial ?? "Create worker (c)"}
      onClick={openCreateDialog}
    >
      <Glyph name="plus" />
      Create worker
    </button>
  );
}

function FleetList() {
  if (!isLoaded.value) return <SkeletonTable />;
  if (entries.value.size === 0) return <NoWorkers />;
  return (
    <>
      <FleetToolbar />
      {rows.value.length > 0 ? <FleetTable /> : <NoMatch isFiltered={listableCount.value > 0} />}
    </>
  );
}

/** At the foot of the window: rows that come or go do not move its buttons. */
function SelectionBar() {
  useEffect(() => clearSelection, []);
  const selected = selectedEntries.value;
  if (selected.length === 0) return null;
  return (
    <section class="selection-bar" aria-label="Selection">
      <span class="selection-count">{selected.length.toLocaleString("en-US")} selected</span>
      {BULK_ACTIONS.map((action) => (
        <BulkButton key={action} action={action} />
      ))}
      <button type="button" class="text-button" onClick={clearSelection}>
        Clear
      </button>
    </section>
  );
}

const BULK_LABEL: Readonly<Record<BulkAction, string>> = { ...ACTION_LABEL, hold: "Hold", adopt: "Adopt" };

function BulkButton({ action }: { action: BulkAction }) {
  const denial = denialFor(action);
  const isPossible = useComputed(
    () =>
      planOf(
        selectedEntries.value.map(({ worker }) => worker.value),
        action,
      ).changed.length > 0,
  ).value;
  return (
    <button
      type="button"
      class={action === "delete" ? "button button-small button-danger" : "button button-small"}
      disabled={denial !== null || !isPossible}
      title={denial ?? (isPossible ? "" : "Not possible for any of them now.")}
      onClick={() => {
        const chosen = selectedEntries.peek();
        openDialog.value =
          action === "hold" || action === "adopt"
            ? { kind: action, entries: chosen }
            : { kind: "bulk", action, entries: chosen };
      }}
    >
      {BULK_LABEL[action]}…
    </button>
  );
}

function Shortcuts() {
  return (
    <section class="shortcuts" aria-label="Keyboard shortcuts">
      <span>
        <kbd>/</kbd> filter
      </span>
      <span>
        <kbd>c</kbd> create
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
        <kbd>Esc</kbd> close
      </span>
      <span>
        {PAGES.map(({ key }) => (
          <kbd key={key}>{key}</kbd>
        ))}{" "}
        pages
      </span>
      <span>
        <kbd>Ctrl</kbd>
        <kbd>K</kbd> commands
      </span>
      <span>
        <kbd>?</kbd> all keys
      </span>
    </section>
  );
}
