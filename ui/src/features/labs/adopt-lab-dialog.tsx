import { useSignal } from "@preact/signals";
import { useAnswer } from "../../app/answer";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { adoptLab } from "../../app/lab-api";
import { listDefinitions } from "../../app/lablet-api";
import type { LabView } from "../../generated/api";
import { adoptionOf, nameOf } from "./all-labs";
import { labsChanged } from "./lab-changes";

const NONE = "";

/** Adopts a lab as one of a definition, or as none. */
export function AdoptLabDialog({ lab }: { lab: LabView }) {
  const chosen = useSignal(NONE);
  const { value, problem: unknown } = useAnswer("definitions", listDefinitions);
  const { problem, isBusy, send } = useSubmission();
  const definitions = value.value ?? [];

  function submit(): void {
    void send(async () => {
      await adoptLab(lab, adoptionOf(definitions, chosen.peek()));
      labsChanged();
    });
  }

  return (
    <FormDialog
      title={`Adopt ${nameOf(lab)}?`}
      submitLabel="Adopt lab"
      isBusy={isBusy}
      problem={problem}
      onSubmit={submit}
    >
      <p class="dialog-text">
        LCM never removes an adopted lab by itself, and people only by its title. As a lab of a definition it is listed
        under its name, and what that needs on {lab.worker_name} is kept free.
      </p>
      <div class="field">
        <label for="adopted-as">Adopt as a lab of</label>
        <select
          id="adopted-as"
          class="select"
          value={chosen.value}
          onChange={({ currentTarget }) => {
            chosen.value = currentTarget.value;
          }}
        >
          <option value={NONE}>No definition</option>
          {definitions.map(({ id, name, version }) => (
            <option key={id} value={id}>
              {name} {version}
            </option>
          ))}
        </select>
        {unknown.value !== null && (
          <p class="field-note" role="status">
            The definitions could not be fetched: {unknown.value}
          </p>
        )}
      </div>
    </FormDialog>
  );
}
