import type { SortColumn } from "../worker/model";

export type ColumnId = SortColumn | "load";

export interface Column {
  readonly id: ColumnId;
  readonly label: string;
  /** Null: rows sorted by a value that changes every second would never stop moving. */
  readonly sort: SortColumn | null;
}

export const COLUMNS: readonly Column[] = (
  [
    { id: "name", label: "Name" },
    { id: "status", label: "Status" },
    { id: "load", label: "Load" },
    { id: "template", label: "Template" },
    { id: "region", label: "Region" },
    { id: "cml", label: "CML" },
    { id: "address", label: "Address" },
    { id: "age", label: "Age" },
  ] as const
).map((column) => ({ ...column, sort: column.id === "load" ? null : column.id }));

/** Every row has its name, which leads to the worker. */
export const CHOOSABLE: readonly Column[] = COLUMNS.filter(({ id }) => id !== "name");

export type Density = "comfortable" | "compact";
