import { requestAction } from "../../app/commands";
import { denialFor } from "../../app/session";
import type { WorkerEntry } from "../../app/store";
import type { Action } from "../../generated/api";
import { Glyph, Spinner } from "../../kit/icons";
import { ACTION_LABEL, rowActions } from "../worker/model";

/**
 * The actions of a row. Each button names its worker; actions that the role may not request, or that have no
 * space, are left out.
 */
export function WorkerActions({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  const pending = entry.pending.value;
  return (
    <div class="actions">
      {rowActions(worker)
        .filter((action) => denialFor(action) === null)
        .map((action) => (
          <ActionButton
            key={action}
            action={action}
            label={`${ACTION_LABEL[action]} ${worker.name}`}
            isBusy={pending === action}
            isDisabled={pending !== null}
            onClick={() => requestAction(entry, action)}
          />
        ))}
    </div>
  );
}

interface ActionButtonProps {
  readonly action: Action;
  readonly label: string;
  readonly isBusy: boolean;
  readonly isDisabled: boolean;
  readonly onClick: () => void;
}

function ActionButton({ action, label, isBusy, isDisabled, onClick }: ActionButtonProps) {
  return (
    <button
      type="button"
      class="action"
      data-action={action}
      aria-label={label}
      aria-busy={isBusy}
      title={label}
      disabled={isDisabled}
      onClick={onClick}
    >
      {isBusy ? <Spinner /> : <Glyph name={action} />}
      <span class="action-text">{ACTION_LABEL[action]}</span>
    </button>
  );
}
