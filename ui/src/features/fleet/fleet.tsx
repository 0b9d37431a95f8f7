import { openCreateDialog } from "../../app/commands";
import { PAGES } from "../../app/router";
import { denialFor } from "../../app/session";
import { entries, isLoaded } from "../../app/store";
import { Glyph } from "../../kit/icons";
import { Debts } from "../license/debts-notice";
import { NoMatch, NoWorkers } from "./empty";
import { FleetTable, SkeletonTable } from "./fleet-table";
import { FleetToolbar } from "./fleet-toolbar";
import { Summary } from "./summary";
import { listableCount, rows } from "./view";

export function Fleet() {
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
    </section>
  );
}
