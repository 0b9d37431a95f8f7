/** The view of the fleet as the query of its URL: a link leads to the same list. */

import { GROUPS, type GroupId, type Sort } from "../worker/model";
import { CHOOSABLE, COLUMNS, type ColumnId, type Density } from "./columns";

export interface FleetView {
  readonly text: string;
  readonly groups: ReadonlySet<GroupId>;
  readonly isWithTerminated: boolean;
  readonly sort: Sort;
  /** The columns that the user chose besides the name; null: as many as have space. */
  readonly columns: ReadonlySet<ColumnId> | null;
  readonly density: Density;
}

const FIRST: Sort = { column: "name", descending: false };

export function viewFrom(query: URLSearchParams): FleetView {
  const sort = query.get("sort") ?? "";
  const column = COLUMNS.find(({ sort: by }) => by !== null && by === sort.replace(/^-/, ""))?.sort ?? null;
  return {
    text: query.get("q") ?? "",
    groups: new Set(chosen(query.get("status") ?? "", GROUPS)),
    isWithTerminated: query.has("terminated"),
    sort: column === null ? FIRST : { column, descending: sort.startsWith("-") },
    columns: columnsFrom(query.get("columns")),
    density: query.get("density") === "compact" ? "compact" : "comfortable",
  };
}

function columnsFrom(text: string | null): ReadonlySet<ColumnId> | null {
  const columns = new Set(chosen(text ?? "", CHOOSABLE));
  return text === null || columns.size === CHOOSABLE.length ? null : columns;
}

function chosen<T extends string>(text: string, offered: readonly { readonly id: T }[]): readonly T[] {
  const names = text.split(",");
  return offered.map(({ id }) => id).filter((id) => names.includes(id));
}

export function queryOfView({ text, groups, isWithTerminated, sort, columns, density }: FleetView): string {
  const query = new URLSearchParams();
  if (text.trim() !== "") query.set("q", text);
  if (groups.size > 0) query.set("status", listed(groups, GROUPS));
  if (isWithTerminated) query.set("terminated", "");
  if (sort.column !== FIRST.column || sort.descending) query.set("sort", `${sort.descending ? "-" : ""}${sort.column}`);
  if (columns !== null) query.set("columns", listed(columns, CHOOSABLE));
  if (density !== "comfortable") query.set("density", density);
  return query.toString();
}

function listed<T extends string>(ids: ReadonlySet<T>, offered: readonly { readonly id: T }[]): string {
  return offered.flatMap(({ id }) => (ids.has(id) ? [id] : [])).join();
}
