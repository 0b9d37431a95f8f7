/** How the fleet is shown: saved views, columns and density. What is chosen shows at once behind the menu. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { showError } from "../../app/toasts";
import { Glyph } from "../../kit/icons";
import { CHOOSABLE, type Density } from "./columns";
import { queryOfView } from "./filter";
import { forgetView, MAX_NAME, type SavedView, savedViews, saveView, viewHref } from "./saved-views";
import { columns, density, isShown, toggleColumn, view } from "./view";

const MENU_ID = "view-menu";

export function ViewMenu() {
  const isOpen = useSignal(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const query = queryOfView(view.value);
  const current = savedViews.value.find((saved) => saved.query === query);

  useEffect(() => {
    const closeOutside = ({ target }: Event) => {
      if (target instanceof Node && root.current?.contains(target) === false) isOpen.value = false;
    };
    const closeByKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || !isOpen.value) return;
      event.preventDefault();
      isOpen.value = false;
      button.current?.focus();
    };
    root.current?.addEventListener("keydown", closeByKey);
    document.addEventListener("pointerdown", closeOutside);
    document.addEventListener("focusin", closeOutside);
    return () => {
      root.current?.removeEventListener("keydown", closeByKey);
      document.removeEventListener("pointerdown", closeOutside);
      document.removeEventListener("focusin", closeOutside);
    };
  }, []);

  return (
    <div ref={root} class="view">
      <button
        ref={button}
        type="button"
        class="button button-small"
        aria-expanded={isOpen.value}
        aria-controls={MENU_ID}
        onClick={() => {
          isOpen.value = !isOpen.value;
        }}
      >
        <Glyph name="view" />
        <span class="view-name">{current === undefined ? "View" : `View: ${current.name}`}</span>
      </button>
      <section id={MENU_ID} class="view-menu" aria-label="View" hidden={!isOpen.value}>
        {isOpen.value && (
          <>
            <SavedViews current={current} query={query} />
            <Columns />
            <Densities />
          </>
        )}
      </section>
    </div>
  );
}

function SavedViews({ current, query }: { current: SavedView | undefined; query: string }) {
  const name = useSignal("");
  function save(event: Event): void {
    event.preventDefault();
    const chosen = name.value.trim();
    if (chosen === "") return;
    if (!saveView(chosen, query))
      showError("The view is not kept", new Error("This browser stores nothing for this page."));
    name.value = "";
  }
  return (
    <fieldset class="view-part">
      <legend>Saved views</legend>
      {savedViews.value.length > 0 && (
        <ul class="view-list">
          {savedViews.value.map((saved) => (
            <li key={saved.name}>
              <a class="view-link" href={viewHref(saved)} aria-current={saved === current}>
                {saved.name}
              </a>
              <button
                type="button"
                class="icon-button"
                aria-label={`Remove the view ${saved.name}`}
                title="Remove"
                onClick={() => forgetView(saved.name)}
              >
                <Glyph name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      <form class="view-save" onSubmit={save}>
        <input
          class="input"
          type="text"
          aria-label="Name of this view"
          placeholder="Name of this view"
          maxLength={MAX_NAME}
          autocomplete="off"
          value={name.value}
          onInput={({ currentTarget }) => {
            name.value = currentTarget.value;
          }}
        />
        <button type="submit" class="button button-small">
          Save
        </button>
      </form>
      <p class="field-note">
        Filter, order, columns and density. Kept in this browser; the address of the page shares it.
      </p>
    </fieldset>
  );
}

function Columns() {
  return (
    <fieldset class="view-part">
      <legend>Columns</legend>
      <div class="view-columns">
        {CHOOSABLE.map(({ id, label }) => (
          <label key={id} class="view-choice">
            <input type="checkbox" checked={isShown(id)} onChange={() => toggleColumn(id)} />
            {label}
          </label>
        ))}
      </div>
      {columns.value === null && <p class="field-note">All of them, as many as have space.</p>}
    </fieldset>
  );
}

const DENSITIES: readonly (readonly [id: Density, label: string])[] = [
  ["comfortable", "Comfortable"],
  ["compact", "Compact"],
];

function Densities() {
  return (
    <fieldset class="view-part">
      <legend>Density</legend>
      <div class="view-columns">
        {DENSITIES.map(([id, label]) => (
          <label key={id} class="view-choice">
            <input
              type="radio"
              name="density"
              checked={density.value === id}
              onChange={() => {
                density.value = id;
              }}
            />
            {label}
          </label>
        ))}
      </div>
    </fieldset>
  );
}
