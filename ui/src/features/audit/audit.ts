/** The security audit log: who changed what, and who was refused. */

import type { SecurityEntry } from "../../generated/api";

/** Each field that changed, as `name: before → after`. */
export function changesOf({ before, after }: SecurityEntry): readonly string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return names.map((name) => {
    const [was, became] = [before[name], after[name]];
    if (was === undefined) return `${name}: ${became}`;
    return became === undefined ? `${name}: was ${was}` : `${name}: ${was} → ${became}`;
  });
}

/** The name of the principal, with its id where that says more. */
export function actorOf({ principal_id, principal_name }: SecurityEntry): string {
  if (principal_id === null || principal_name === null) return "unknown";
  return `${principal_name} (${principal_id})`;
}
