/** Views of the fleet under a name. They stay in this browser; the URL of one is how it is shared. */

import { signal } from "@preact/signals";

export interface SavedView {
  readonly name: string;
  /** As in the URL of the fleet. */
  readonly query: string;
}

const KEY = "lcm.views";

/** Names are shown in a list beside the fleet. */
export const MAX_NAME = 40;

export const savedViews = signal<readonly SavedView[]>(remembered());

/** Save the view; one of the same name is replaced. Returns whether it is kept beyond this page. */
export function saveView(name: string, query: string): boolean {
  const others = savedViews.value.filter((saved) => saved.name !== name);
  return change([...others, { name, query }].sort((a, b) => a.name.localeCompare(b.name)));
}

export function forgetView(name: string): void {
  change(savedViews.value.filter((saved) => saved.name !== name));
}

export function viewHref({ query }: SavedView): string {
  return query === "" ? "#/" : `#/?${query}`;
}

function change(next: readonly SavedView[]): boolean {
  savedViews.value = next;
  try {
    window.localStorage.setItem(KEY, JSON.stringify(next));
    return true;
  } catch {
    return false;
  }
}

/** What another release or a person has left there is dropped unless it is a view. */
function remembered(): readonly SavedView[] {
  try {
    const stored: unknown = JSON.parse(window.localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(stored) ? stored.filter(isView).map(({ name, query }) => ({ name, query })) : [];
  } catch {
    return []; // some private windows deny access to the storage
  }
}

function isView(value: unknown): value is SavedView {
  const { name, query } = (value ?? {}) as Partial<Record<keyof SavedView, unknown>>;
  return typeof name === "string" && name !== "" && typeof query === "string";
}
