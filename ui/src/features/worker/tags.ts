/** A worker's EC2 tags in the editor: rows of a key and a value, in the order they are shown. */

import { MAX_TAGS } from "../../generated/rules";

export interface TagRow {
  readonly key: string;
  readonly value: string;
}

type Tags = Readonly<Record<string, string>>;

const EMPTY: TagRow = { key: "", value: "" };

/** The tags as rows, and an empty row for one more. */
export function tagRows(tags: Tags): readonly TagRow[] {
  return [...Object.entries(tags).map(([key, value]) => ({ key, value })), EMPTY];
}

/** The rows with one of them changed; the last row is always empty. */
export function withRow(rows: readonly TagRow[], index: number, change: Partial<TagRow>): readonly TagRow[] {
  const changed = rows.map((row, at) => (at === index ? { ...row, ...change } : row));
  const last = changed.at(-1);
  return last === undefined || !isEmpty(last) ? [...changed, EMPTY] : changed;
}

export function withoutRow(rows: readonly TagRow[], index: number): readonly TagRow[] {
  return withRow(
    rows.filter((_, at) => at !== index),
    -1,
    {},
  );
}

/** What is wrong with these rows, or null; the server checks the remaining rules. */
export function tagProblem(rows: readonly TagRow[]): string | null {
  const filled = rows.filter((row) => !isEmpty(row));
  const nameless = filled.find(({ key }) => key.trim() === "");
  if (nameless !== undefined) return `The value “${nameless.value}” has no key.`;
  const keys = filled.map(({ key }) => key.trim());
  const twice = keys.find((key, at) => keys.indexOf(key) !== at);
  if (twice !== undefined) return `“${twice}” appears twice.`;
  return keys.length > MAX_TAGS ? `An instance takes at most ${MAX_TAGS} tags; these are ${keys.length}.` : null;
}

export function tagsOf(rows: readonly TagRow[]): Tags {
  return Object.fromEntries(rows.filter((row) => !isEmpty(row)).map(({ key, value }) => [key.trim(), value.trim()]));
}

function isEmpty({ key, value }: TagRow): boolean {
  return key.trim() === "" && value.trim() === "";
}
