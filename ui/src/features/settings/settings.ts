/** Settings as documents that people edit, with what they change. */

import { signal } from "@preact/signals";

/** Counts changes that people make here: lists of settings are then fetched again. */
export const settingsChanges = signal(0);

type Document = Readonly<Record<string, unknown>>;

export interface FieldChange {
  readonly name: string;
  /** As JSON; null if the field was or is not there. */
  readonly before: string | null;
  readonly after: string | null;
}

/** The fields that differ, in the order of the document. */
export function changedFields(before: Document, after: Document): readonly FieldChange[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names
    .map((name) => ({ name, before: textOf(before, name), after: textOf(after, name) }))
    .filter((change) => change.before !== change.after);
}

function textOf(document: Document, name: string): string | null {
  return name in document ? JSON.stringify(document[name]) : null;
}

/** The document in a text, or what is wrong with the text. */
export function parsed(text: string): { readonly document: Document } | { readonly mistake: string } {
  try {
    const document: unknown = JSON.parse(text);
    if (typeof document === "object" && document !== null && !Array.isArray(document)) {
      return { document: document as Document };
    }
    return { mistake: "It must be an object: { … }." };
  } catch (error) {
    return { mistake: error instanceof Error ? error.message : String(error) };
  }
}

export function formatted(document: object): string {
  return JSON.stringify(document, null, 2);
}
