/** A request to many workers: first what will happen and what not, then how far it is. */

import { useSignal } from "@preact/signals";
import { type BulkRequest, sendActions } from "../../app/commands";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { entries, type WorkerEntry } from "../../app/store";
import type { WorkerView } from "../../generated/api";
import { formatCount } from "../../kit/format";
import { ACTION_LABEL } from "../worker/model";
import { type BulkPlan, planOf, warningOf } from "./bulk";
import { clearSelection } from "./selection";

interface BulkDialogProps {
  readonly action: BulkRequest;
  readonly entries: readonly WorkerEntry[];
}

export function BulkDialog({ action, entries: chosen }: BulkDialogProps) {
  // What is shown is what is done: the lists do not change under the pointer.
  const plan = useSignal(
    planOf(
      chosen.map(({ worker }) => worker.peek()),
      action,
    ),
  ).value;
  const answered = useSignal(0);
  const { problem, isBusy, send } = useSubmission();
  const count = formatCount(plan.changed.length, "worker");
  const warning = warningOf(action, plan.changed);

  function submit(): void {
    void send(async () => {
      const found = plan.changed.flatMap(({ id }) => entries.peek().get(id) ?? []);
      await sendActions(found, action, (done) => {
        answered.value = done;
      });
      clearSelection();
    });
  }

  return (
    <FormDialog
      title={`${ACTION_LABEL[action]} ${count}?`}
      submitLabel={isBusy.value ? `${answered.value} of ${plan.changed.length}` : `${ACTION_LABEL[action]} ${count}`}
      isDangerous={action === "delete"}
      isBusy={isBusy}
      problem={problem}
      onSubmit={submit}
    >
      {warning !== null && plan.changed.length > 0 && <p class="dialog-text">{warning}</p>}
      <Names title={`${ACTION_LABEL[action]}`} workers={plan.changed} />
      <Skipped plan={plan} />
    </FormDialog>
  );
}

export function Skipped({ plan: { skipped } }: { plan: BulkPlan }) {
  return (
    <>
      {[...skipped].map(([reason, workers]) => (
        <Names
          key={reason}
          title={`Left as ${workers.length === 1 ? "it is" : "they are"}: ${reason}`}
          workers={workers}
        />
      ))}
    </>
  );
}

const SHOWN = 12;

function Names({ title, workers }: { title: string; workers: readonly WorkerView[] }) {
  if (workers.length === 0) return null;
  const others = workers.length - SHOWN;
  return (
    <section class="bulk-part" aria-label={title}>
      <h3>
        {title} <span class="count">{workers.length}</span>
      </h3>
      <p>
        {workers
          .slice(0, SHOWN)
          .map(({ name }) => name)
          .join(", ")}
        {others > 0 && ` and ${others} more`}
      </p>
    </section>
  );
}
