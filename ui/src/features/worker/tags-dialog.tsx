import { useSignal } from "@preact/signals";
import * as api from "../../app/api";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { applyWorkers, type WorkerEntry } from "../../app/store";
import { MAX_LENGTH } from "../../generated/rules";
import { Glyph } from "../../kit/icons";
import { tagProblem, tagRows, tagsOf, withoutRow, withRow } from "./tags";

export function TagsDialog({ entry }: { entry: WorkerEntry }) {
  const rows = useSignal(tagRows(entry.worker.peek().tags));
  const { problem, isBusy, send } = useSubmission();

  function submit(): void {
    problem.value = tagProblem(rows.value);
    if (problem.value !== null) return;
    void send(async () => applyWorkers([await api.setTags(entry.id, tagsOf(rows.value))]));
  }

  return (
    <FormDialog
      title={`Tags of ${entry.worker.value.name}`}
      submitLabel="Save tags"
      isBusy={isBusy}
      problem={problem}
      onSubmit={submit}
    >
      <fieldset class="field">
        <legend>Key and value</legend>
        {rows.value.map((row, index) => (
          <div key={index} class="tag-row">
            <input
              class="input"
              aria-label={`Key ${index + 1}`}
              maxLength={MAX_LENGTH.tagKey}
              placeholder="team"
              autocomplete="off"
              autofocus={index === 0}
              value={row.key}
              onInput={({ currentTarget }) => {
                rows.value = withRow(rows.value, index, { key: currentTarget.value });
                problem.value = null;
              }}
            />
            <input
              class="input"
              aria-label={`Value ${index + 1}`}
              maxLength={MAX_LENGTH.tagValue}
              placeholder="networking"
              autocomplete="off"
              value={row.value}
              onInput={({ currentTarget }) => {
                rows.value = withRow(rows.value, index, { value: currentTarget.value });
                problem.value = null;
              }}
            />
            <button
              type="button"
              class="icon-button"
              title="Remove"
              aria-label={`Remove tag ${index + 1}`}
              disabled={index === rows.value.length - 1}
              onClick={() => {
                rows.value = withoutRow(rows.value, index);
              }}
            >
              <Glyph name="close" />
            </button>
          </div>
        ))}
        <p class="field-note">LCM puts them on the EC2 instance. Its own tags are not shown and stay.</p>
      </fieldset>
    </FormDialog>
  );
}
