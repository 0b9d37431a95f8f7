/** The commands that the palette has now. */

import { openCreateDialog, openDialog, requestAction } from "../../app/commands";
import { API_HREF, go, newSessionHref, openWorkerId, PAGES, showWorker } from "../../app/router";
import { denialFor, signOut } from "../../app/session";
import { entries, type WorkerEntry } from "../../app/store";
import { nextTheme } from "../../app/theme";
import { showError } from "../../app/toasts";
import { savedViews, viewHref } from "../fleet/saved-views";
import { ACTION_LABEL, effectiveActions } from "../worker/model";
import { curlCommand, lcmCommand, type PaletteCommand } from "./palette";

export function paletteCommands(): readonly PaletteCommand[] {
  const workers = [...entries.value.values()];
  const open = workers.filter(({ id }) => id === openWorkerId.value);
  return [
    ...open.flatMap(commandsOf),
    ...PAGES.map(({ id, label, href, key }) => always(`page-${id}`, `Go to ${label}`, key, () => go(href))),
    ...savedViews.value.map((saved) =>
      always(`view-${saved.name}`, `Show the view ${saved.name}`, "view", () => go(viewHref(saved))),
    ),
    always("api", "Go to API reference", "", () => go(API_HREF)),
    { ...always("create", "Create worker…", "c", openCreateDialog), denial: denialFor("create") },
    { ...always("book", "New session…", "", () => go(newSessionHref())), denial: denialFor("book") },
    always("theme", "Next theme", "", nextTheme),
    always("keys", "Keyboard shortcuts", "?", () => {
      openDialog.value = { kind: "shortcuts" };
    }),
    always("sign-out", "Sign out", "", () => void signOut()),
    ...workers.map(({ id, worker }) =>
      always(`open-${id}`, `Open ${worker.value.name}`, "worker", () => showWorker(id)),
    ),
    ...workers.filter((entry) => !open.includes(entry)).flatMap(commandsOf),
  ];
}

function always(id: string, label: string, hint: string, run: () => void): PaletteCommand {
  return { id, label, hint, denial: null, run };
}

/** What can be done to a worker now, here or in a terminal. */
function commandsOf(entry: WorkerEntry): readonly PaletteCommand[] {
  const worker = entry.worker.value;
  return effectiveActions(worker).flatMap((action) => {
    const label = `${ACTION_LABEL[action]} ${worker.name}`;
    const terminal = [lcmCommand(action, worker.name), curlCommand(window.location.origin, action, worker.id)];
    return [
      {
        id: `${action}-${entry.id}`,
        label: action === "delete" ? `${label}…` : label,
        hint: "worker",
        denial: denialFor(action),
        run: () => requestAction(entry, action),
      },
      ...terminal.map((text) => always(`copy-${text}`, `Copy ${text}`, "terminal", () => void copy(text))),
    ];
  });
}

async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch (error) {
    showError("Could not copy; browsers offer the clipboard to secure pages only", error);
  }
}
