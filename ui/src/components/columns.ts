import type { SortColumn } from "../model";

export const COLUMNS: readonly { readonly id: SortColumn; readonly label: string }[] = [
  { id: "name", label: "Name" },
  { id: "status", label: "Status" },
  { id: "template", label: "Template" },
  { id: "region", label: "Region" },
  { id: "cml", label: "CML" },
  { id: "address", label: "Address" },
  { id: "age", label: "Age" },
];
