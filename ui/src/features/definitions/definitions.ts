/** Definitions by name, with their versions; the rules that need no browser. */

import type { Capacity, LabletDefinitionView, TopologyAnalysis } from "../../generated/api";
import { formatCount, formatRemaining } from "../../kit/format";

export interface DefinitionGroup {
  readonly name: string;
  /** The one to show: the newest that sessions can be created from, else the newest. */
  readonly shown: LabletDefinitionView;
  /** Newest first. */
  readonly versions: readonly LabletDefinitionView[];
}

const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export function groupsOf(definitions: readonly LabletDefinitionView[]): readonly DefinitionGroup[] {
  const byName = new Map<string, LabletDefinitionView[]>();
  for (const definition of definitions) {
    const versions = byName.get(definition.name) ?? [];
    versions.push(definition);
    byName.set(definition.name, versions);
  }
  const groups = [...byName].map(([name, found]) => {
    const versions = [...found].sort((a, b) => natural.compare(b.version, a.version));
    const shown = versions.find(({ status }) => status === "active") ?? (versions[0] as LabletDefinitionView);
    return { name, shown, versions };
  });
  return groups.sort((a, b) => natural.compare(a.name, b.name));
}

export function capacityText({ cpu, memory_gb, storage_gb, nodes }: Capacity): string {
  return `${cpu} CPU, ${memory_gb} GB memory, ${storage_gb} GB disk, ${formatCount(nodes, "node")}`;
}

/** What the author stated, if it is more than what was computed; null otherwise. */
export function statedText({ demand, computed_needs }: LabletDefinitionView): string | null {
  const computed = capacityText(computed_needs);
  const stated = capacityText(demand.needs);
  return stated === computed ? null : stated;
}

/** How long its labs take to come up, as those before did. */
export function readyText({ median_ready_seconds: seconds }: Pick<TopologyAnalysis, "median_ready_seconds">): string {
  return seconds === null ? "not known yet: too few labs came up" : `${formatRemaining(1_000 * seconds)} (median)`;
}
