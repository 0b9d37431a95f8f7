import { closeDialog } from "../../app/commands";
import { PAGES } from "../../app/router";
import { Dialog } from "../../kit/dialog";

const SHORTCUTS: readonly (readonly [keys: readonly string[], meaning: string])[] = [
  [["Ctrl", "K"], "commands"],
  [["?"], "this sheet"],
  [["/"], "filter"],
  [["c"], "create a worker; on Sessions a session"],
  [["j", "k"], "next, previous row"],
  [["Enter"], "open the row"],
  [["x"], "select the row"],
  [["Shift", "click"], "select a range"],
  [["u"], "undo what was done last, while it is offered"],
  [["Esc"], "close the worker or the dialog, or clear the selection"],
];

/** All keys in one place. */
export function ShortcutsDialog() {
  return (
    <Dialog title="Keyboard shortcuts" isWide onClose={closeDialog}>
      <dl class="keys">
        {SHORTCUTS.map(([keys, meaning]) => (
          <Shortcut key={meaning} keys={keys} meaning={meaning} />
        ))}
        {PAGES.map(({ id, key, label }) => (
          <Shortcut key={id} keys={[key]} meaning={label} />
        ))}
      </dl>
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={closeDialog}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

function Shortcut({ keys, meaning }: { keys: readonly string[]; meaning: string }) {
  return (
    <div>
      <dt>
        {keys.map((key) => (
          <kbd key={key}>{key}</kbd>
        ))}
      </dt>
      <dd>{meaning}</dd>
    </div>
  );
}
