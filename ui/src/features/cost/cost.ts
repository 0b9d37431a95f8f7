/** The cost of the fleet, as the control plane computes it. */

import { signal } from "@preact/signals";
import type { CostDay, CostLine, CostReport } from "../../generated/api";
import { formatSum } from "../../kit/format";

/** Null until it is loaded. */
export const costReport = signal<CostReport | null>(null);

const monthName = new Intl.DateTimeFormat("en-US", { month: "long", year: "numeric", timeZone: "UTC" });
const dayName = new Intl.DateTimeFormat("en-US", { month: "short", day: "numeric", timeZone: "UTC" });

export function formatMonth(month: string): string {
  return monthName.format(new Date(`${month}-01T00:00:00Z`));
}

/** As in "Nov 5". */
export function formatDay(day: string): string {
  return dayName.format(new Date(`${day}T00:00:00Z`));
}

/** What a group's disks cost; those that are in no figure are named. */
export function formatDisks({ usd_disk_this_month: usd, unknown_disks: unknown }: CostLine): string {
  if (usd === null) return "unknown";
  return unknown === 0 ? formatSum(usd) : `${formatSum(usd)} + ${unknown.toLocaleString("en-US")} unknown`;
}

/** A place for each day of the month; null for those to come. */
export function daysOf(report: CostReport): readonly (CostDay | null)[] {
  const [year, month] = report.month.split("-").map(Number) as [number, number];
  const length = new Date(Date.UTC(year, month, 0)).getUTCDate();
  return Array.from({ length }, (_, index) => report.days[index] ?? null);
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
