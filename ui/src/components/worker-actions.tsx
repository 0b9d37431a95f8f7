import { ask } from "../commands";
import { ACTION_LABEL, type Action, rowActions, sensibleActions } from "../model";
import { refusalFor } from "../session";
import type { WorkerEntry } from "../store";
import { Glyph, Spinner } from "./icons";

interface WorkerActionsProps {
  readonly entry: WorkerEntry;
  /**
   * Rows are many: they name the worker in each button and leave out what the role may not do, and
   * what there is no room for.
   * The panel is about one worker: it shows everything and says why something is not allowed.
   */
  readonly place: "row" | "panel";
}

export function WorkerActions({ entry, place }: WorkerActionsProps) {
  const worker = entry.worker.value;
  const pending = entry.pending.value;
  const actions =
    place === "panel" ? sensibleActions(worker) : rowActions(worker).filter((action) => refusalFor(action) === null);
  return (
    <div class={`actions actions-${place}`}>
      {actions.map((action) => (
        <ActionButton
          key={action}
          action={action}
          label={place === "row" ? `${ACTION_LABEL[action]} ${worker.name}` : ACTION_LABEL[action]}
          refusal={refusalFor(action)}
          isBusy={pending === action}
          isDisabled={pending !== null}
          onClick={() => ask(entry, action)}
        />
      ))}
    </div>
  );
}

interface ActionButtonProps {
  readonly action: Action;
  readonly label: string;
  readonly refusal: string | null;
  readonly isBusy: boolean;
  readonly isDisabled: boolean;
  readonly onClick: () => void;
}

function ActionButton({ action, label, refusal, isBusy, isDisabled, onClick }: ActionButtonProps) {
  return (
    <button
      type="button"
      class="action"
      data-action={action}
      aria-label={label}
      aria-busy={isBusy}
      title={refusal ?? label}
      disabled={isDisabled || refusal !== null}
      onClick={onClick}
    >
      {isBusy ? <Spinner /> : <Glyph name={action} />}
      <span class="action-text">{ACTION_LABEL[action]}</span>
    </button>
  );
}
