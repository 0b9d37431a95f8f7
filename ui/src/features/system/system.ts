/** LCM's own processes, in the words of the page. */

import type { ControllerState, MonitorState, OrphanView, ProcessView, RegionScan } from "../../generated/api";
import type { Color } from "../../generated/rules";
import { formatCount } from "../../kit/format";

export function processColor({ report, is_silent }: ProcessView): Color {
  if (is_silent || report.silent_loops.length > 0) return "red";
  return report.frozen.length > 0 ? "orange" : "green";
}

/** What a controller does: its queue, and whether it leads. */
export function workText(state: ControllerState | null): string {
  if (state === null) return "";
  const parts = [
    state.is_leader ? "leads" : "standby",
    `${state.in_progress} in progress`,
    `${state.waiting} waiting`,
    `${state.scheduled} scheduled`,
  ];
  if (state.retrying > 0) parts.push(`${state.retrying} retrying`);
  return parts.join(" · ");
}

/** "12 ms": how late timers run. */
export function lagText(seconds: number): string {
  return `${Math.round(seconds * 1_000)} ms late`;
}

const MONITOR_COLOR: Readonly<Record<MonitorState, Color>> = {
  connected: "green",
  connecting: "orange",
  authenticating: "orange",
  reconnecting: "orange",
  failed: "red",
  disconnected: "grey",
  disabled: "grey",
};

export function monitorColor(state: MonitorState): Color {
  return MONITOR_COLOR[state] ?? "grey";
}

export function scanText({ error, found, imported }: RegionScan): string {
  if (error !== "") return error;
  return found === 0 ? "nothing new" : `${formatCount(found, "instance")} found, ${imported} imported`;
}

/** Those of one kind together. */
export function byKind(orphans: readonly OrphanView[]): readonly OrphanView[] {
  return [...orphans].sort((a, b) => a.kind.localeCompare(b.kind) || a.instance_id.localeCompare(b.instance_id));
}
