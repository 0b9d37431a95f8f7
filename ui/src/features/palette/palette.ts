/** What the command palette offers: pages, workers, their actions and the same as commands of a terminal. */

import type { Action } from "../../generated/api";

export interface PaletteCommand {
  readonly id: string;
  readonly label: string;
  /** What kind of command it is, or the key that does the same. */
  readonly hint: string;
  /** Why it cannot be run now, or null. */
  readonly denial: string | null;
  readonly run: () => void;
}

const MAX_SHOWN = 12;

/** The commands that contain every word, those that begin with the text first; all else in their order. */
export function matching(commands: readonly PaletteCommand[], text: string): readonly PaletteCommand[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const whole = words.join(" ");
  const found = commands
    .map((command) => ({ command, label: command.label.toLowerCase() }))
    .filter(({ label }) => words.every((word) => label.includes(word)));
  const first = found.filter(({ label }) => label.startsWith(whole));
  const rest = found.filter(({ label }) => !label.startsWith(whole));
  return [...first, ...rest].slice(0, MAX_SHOWN).map(({ command }) => command);
}

/** The action as a command of a terminal, with `lcm`. */
export function lcmCommand(action: Action, name: string): string {
  return `lcm ${action === "cancel-drain" ? "drain --cancel" : action} ${name}`;
}

/** The same with curl; the token stays in the terminal's environment. */
export function curlCommand(origin: string, action: Action, id: string): string {
  const path = `${origin}/api/workers/${encodeURIComponent(id)}`;
  const request = action === "delete" ? `-X DELETE ${path}` : `-X POST ${path}/${action}`;
  return `curl -H "Authorization: Bearer $LCM_TOKEN" ${request}`;
}
