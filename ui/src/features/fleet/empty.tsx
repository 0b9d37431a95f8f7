import { openCreateDialog } from "../../app/commands";
import { denialFor } from "../../app/session";
import { Glyph } from "../../kit/icons";
import { clearFilters, showTerminated } from "./view";

export function NoWorkers() {
  const denial = denialFor("create");
  return (
    <section class="empty">
      <Constellation />
      <h2>No workers yet</h2>
      <p>
        A worker is a Cisco Modeling Labs server on EC2. Request one: the controllers launch it, monitor it and report
        here.
      </p>
      <button
        type="button"
        class="button button-primary"
        disabled={denial !== null}
        title={denial ?? ""}
        onClick={openCreateDialog}
      >
        <Glyph name="plus" />
        Create your first worker
      </button>
      {!showTerminated.value && <ShowTerminated label="Show terminated workers" />}
    </section>
  );
}

/** Workers exist, but none is listed: the filter hides them, or all of them are terminated. */
export function NoMatch({ isFiltered }: { isFiltered: boolean }) {
  return (
    <section class="empty empty-small">
      <h2>{isFiltered ? "No matching workers" : "Every worker is terminated"}</h2>
      {isFiltered ? (
        <button type="button" class="button" onClick={clearFilters}>
          Clear the filters
        </button>
      ) : (
        <ShowTerminated label="Show them" />
      )}
    </section>
  );
}

function ShowTerminated({ label }: { label: string }) {
  return (
    <button
      type="button"
      class="text-button"
      onClick={() => {
        showTerminated.value = true;
      }}
    >
      {label}
    </button>
  );
}

function Constellation() {
  return (
    <svg class="constellation" viewBox="0 0 160 84" fill="none" aria-hidden="true">
      <path
        d="M26 60 62 24l40 34 34-36M62 24l74-2M26 60l76-2"
        stroke="currentColor"
        stroke-width="1.25"
        stroke-dasharray="3 4"
      />
      <rect x="16" y="50" width="20" height="20" rx="6" />
      <rect x="52" y="14" width="20" height="20" rx="6" />
      <rect x="92" y="48" width="20" height="20" rx="6" />
      <rect class="constellation-next" x="126" y="12" width="20" height="20" rx="6" />
      <path class="constellation-next" d="M136 18v8M132 22h8" />
    </svg>
  );
}
