import { useSignal } from "@preact/signals";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { removeLab } from "../../app/lab-api";
import type { LabView } from "../../generated/api";
import { asksForTitle, nameOf } from "./all-labs";
import { labsChanged } from "./lab-changes";

/** The server judges the title that is typed. */
export function RemoveLabDialog({ lab }: { lab: LabView }) {
  const title = useSignal("");
  const isAsked = asksForTitle(lab);
  const { problem, isBusy, send } = useSubmission();

  function submit(): void {
    void send(async () => {
      await removeLab(lab, isAsked ? { title: title.value } : {});
      labsChanged();
    });
  }

  return (
    <FormDialog
      title={`Remove ${nameOf(lab)}?`}
      submitLabel="Remove lab"
      isBusy={isBusy}
      problem={problem}
      onSubmit={submit}
    >
      <p class="dialog-text">
        The lab is stopped, wiped and deleted on {lab.worker_name}. <strong>What it holds is lost.</strong>
      </p>
      {isAsked && (
        <div class="field">
          <label for="lab-title">People keep this lab: enter its title</label>
          <input
            id="lab-title"
            class="input"
            autocomplete="off"
            spellcheck={false}
            value={title.value}
            placeholder={lab.title ?? ""}
            onInput={(event) => {
              title.value = event.currentTarget.value;
            }}
          />
        </div>
      )}
    </FormDialog>
  );
}
