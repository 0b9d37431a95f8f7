/** The cost of the fleet, as the control plane computes it. */

import { signal } from "@preact/signals";
import type { CostLine, CostReport } from "../../generated/api";

/** Null until it is loaded. */
export const costReport = signal<CostReport | null>(null);

const monthName = new Intl.DateTimeFormat("en-US", { month: "long", year: "numeric", timeZone: "UTC" });

export function formatMonth(month: string): string {
  return monthName.format(new Date(`${month}-01T00:00:00Z`));
}

export function formatHours(hours: number): string {
  if (hours > 0 && hours < 0.1) return "<0.1 h";
  return `${hours.toLocaleString("en-US", { maximumFractionDigits: hours < 100 ? 1 : 0 })} h`;
}

/** The share of a line in the total, in percent. */
export function shareOf(line: CostLine, total: CostLine): number {
  return total.usd_this_month > 0 ? (line.usd_this_month / total.usd_this_month) * 100 : 0;
}

/** Most expensive first. */
export function byCost(lines: readonly CostLine[]): readonly CostLine[] {
  return [...lines].sort((a, b) => b.usd_this_month - a.usd_this_month || a.key.localeCompare(b.key));
}
