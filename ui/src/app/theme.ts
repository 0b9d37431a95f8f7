/** Dark, light, or the system's theme; stored in this browser. */

import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "dark" | "light";

const KEY = "lcm.theme";
const NEXT: Readonly<Record<Theme, Theme>> = { auto: "dark", dark: "light", light: "auto" };

function remembered(): Theme {
  try {
    const value = window.localStorage.getItem(KEY);
    return value === "dark" || value === "light" ? value : "auto";
  } catch {
    return "auto"; // some private windows deny access to the storage
  }
}

export const theme = signal<Theme>(remembered());

export function startTheme(): void {
  effect(() => {
    document.documentElement.dataset["theme"] = theme.value;
  });
}

export function nextTheme(): void {
  theme.value = NEXT[theme.value];
  try {
    window.localStorage.setItem(KEY, theme.value);
  } catch {
    // Applied, but not stored.
  }
}
