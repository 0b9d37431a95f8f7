/** The view of the fleet as the query of its URL: a link leads to the same list. */

import { GROUPS, type GroupId, type Sort } from "../worker/model";
import { COLUMNS } from "./columns";

export interface FleetView {
  readonly text: string;
  readonly groups: ReadonlySet<GroupId>;
  readonly isWithTerminated: boolean;
  readonly sort: Sort;
}

const FIRST: Sort = { column: "name", descending: false };

export function viewFrom(query: URLSearchParams): FleetView {
  const sort = query.get("sort") ?? "";
  const column = COLUMNS.find(({ sort: by }) => by !== null && by === sort.replace(/^-/, ""))?.sort ?? null;
  const chosen = (query.get("status") ?? "").split(",");
  return {
    text: query.get("q") ?? "",
    groups: new Set(GROUPS.map(({ id }) => id).filter((id) => chosen.includes(id))),
    isWithTerminated: query.has("terminated"),
    sort: column === null ? FIRST : { column, descending: sort.startsWith("-") },
  };
}

export function queryOfView({ text, groups, isWithTerminated, sort }: FleetView): string {
  const query = new URLSearchParams();
  if (text.trim() !== "") query.set("q", text);
  if (groups.size > 0) query.set("status", GROUPS.flatMap(({ id }) => (groups.has(id) ? [id] : [])).join());
  if (isWithTerminated) query.set("terminated", "");
  if (sort.column !== FIRST.column || sort.descending) query.set("sort", `${sort.descending ? "-" : ""}${sort.column}`);
  return query.toString();
}
