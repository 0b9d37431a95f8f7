import { untracked, useComputed, useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { closeDialog } from "../../app/commands";
import { Dialog } from "../../kit/dialog";
import { paletteCommands } from "./commands";
import { matching, type PaletteCommand } from "./palette";

/** Find a command by its words and run it with Enter. */
export function PaletteDialog() {
  const text = useSignal("");
  const chosen = useSignal(0);
  // Read once: what arrives while the palette is open does not move what is about to be pressed.
  const commands = useMemo(() => untracked(paletteCommands), []);
  const found = useComputed(() => matching(commands, text.value));
  const current = found.value[chosen.value];

  function run(command: PaletteCommand | undefined): void {
    if (command === undefined || command.denial !== null) return;
    closeDialog();
    command.run();
  }

  function onKey(event: KeyboardEvent): void {
    const last = found.value.length - 1;
    if (event.key === "ArrowDown") chosen.value = chosen.value < last ? chosen.value + 1 : 0;
    else if (event.key === "ArrowUp") chosen.value = chosen.value > 0 ? chosen.value - 1 : Math.max(last, 0);
    else if (event.key === "Enter")
      run(found.value[chosen.value]); // what was drawn may be older
    else return;
    event.preventDefault();
  }

  return (
    <Dialog title="Commands" isWide onClose={closeDialog}>
      <input
        class="input"
        type="text"
        role="combobox"
        aria-label="Command"
        aria-expanded={found.value.length > 0}
        aria-controls="palette-list"
        aria-activedescendant={current === undefined ? undefined : optionId(chosen.value)}
        placeholder="stop bgp-lab, go to cost…"
        autocomplete="off"
        spellcheck={false}
        autofocus
        value={text.value}
        onInput={({ currentTarget }) => {
          text.value = currentTarget.value;
          chosen.value = 0;
        }}
        onKeyDown={onKey}
      />
      {found.value.length === 0 && (
        <p class="field-note" role="status">
          No command has these words.
        </p>
      )}
      <div id="palette-list" class="palette" role="listbox" aria-label="Commands">
        {found.value.map((command, index) => (
          <div
            key={command.id}
            id={optionId(index)}
            role="option"
            aria-selected={index === chosen.value}
            aria-disabled={command.denial !== null}
            title={command.denial ?? ""}
            onClick={() => run(command)}
          >
            <span>{command.label}</span>
            <span class="palette-hint">{command.denial ?? command.hint}</span>
          </div>
        ))}
      </div>
    </Dialog>
  );
}

function optionId(index: number): string {
  return `palette-option-${index}`;
}
