/** The words for what a worker lacks. */

import type { Rejection } from "../../generated/api";

export const LABEL_TEXT: Readonly<Record<string, string>> = {
  status_not_eligible: "not ready",
  license_affinity: "license",
  insufficient_capacity: "room",
  ami: "software",
  port_availability: "ports",
};

const SUB_TEXT: Readonly<Record<string, string>> = {
  cpu: "CPU",
  memory: "memory",
  storage: "disk",
  nodes: "nodes",
  unknown: "unknown",
  starting: "is coming up",
  draining: "is draining",
  worker_stopped: "is stopped",
  not_ready: "does not answer",
  wrong_region: "another region",
  quarantined: "refused this lab",
  tier: "license tier",
  unlicensed: "no license",
  nodes_over_20: "nodes of the license",
  cml_version: "CML version",
  nested_virt: "nested virtualization",
  patty_off: "PATty",
  range_full: "free ports",
  fixed_port_taken: "a fixed port",
};

/** A code as words: "held_for:ab12" is "held for ab12". A code of a newer server is shown without underscores. */
export function reasonName({ label, sub }: Rejection): string {
  const known = SUB_TEXT[sub];
  if (known !== undefined) return known;
  const [kind = "", name = ""] = sub.split(":", 2);
  const words = kind.replaceAll("_", " ");
  if (kind === "held_for") return `held for ${name.slice(0, 8)}`;
  if (name !== "") return `${words} ${name}`;
  return words || (LABEL_TEXT[label] ?? label);
}

/** The most frequent first. */
export function orderedCounts(counts: Readonly<Record<string, number>>): readonly (readonly [string, number])[] {
  return Object.entries(counts)
    .filter(([, count]) => count > 0)
    .sort(([a, left], [b, right]) => right - left || a.localeCompare(b));
}
