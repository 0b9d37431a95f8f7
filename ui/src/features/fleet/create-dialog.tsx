import { useComputed, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { ApiError } from "../../app/api";
import { closeDialog, create } from "../../app/commands";
import { focusOn, rowLinkId } from "../../app/keyboard";
import { entries, regions, templates } from "../../app/store";
import type { WorkerTemplate } from "../../generated/api";
import { MAX_LENGTH } from "../../generated/rules";
import { Dialog } from "../../kit/dialog";
import { formatUsd } from "../../kit/format";
import { Spinner } from "../../kit/icons";
import { hasKvm, nameProblem, preselected, suggestName } from "../worker/model";

const NAME_HINT = `Lower case letters, digits and hyphens; at most ${MAX_LENGTH.workerName}.`;

export function CreateDialog() {
  const nameField = useRef<HTMLInputElement>(null);
  const name = useSignal(suggestName([...entries.peek().values()].map((entry) => entry.worker.peek().name)));
  const chosenTemplate = useSignal<string | null>(null);
  const chosenRegion = useSignal<string | null>(null);
  const problem = useSignal<ApiError | null>(null);
  const isBusy = useSignal(false);

  const offered = useComputed(() => templates.value.filter(({ enabled }) => enabled));
  // Templates may be loaded after the dialog has opened: a default is computed, never stored.
  const template = useComputed(() => chosenTemplate.value ?? preselected(offered.value)?.name ?? "");
  const region = useComputed(
    () => chosenRegion.value ?? (regions.value.find((r) => r.is_default) ?? regions.value[0])?.name ?? "",
  );
  const nameError = nameProblem(name.value) ?? problem.value?.fields.get("name") ?? null;

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    if (isBusy.value) return;
    if (nameProblem(name.value) !== null) {
      nameField.current?.focus();
      return;
    }
    isBusy.value = true;
    problem.value = null;
    try {
      const id = await create({ name: name.value, template_name: template.value, aws_region: region.value });
      closeDialog();
      window.requestAnimationFrame(() => focusOn(rowLinkId(id)));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = error;
      if (error.fields.has("name")) nameField.current?.focus();
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <Dialog title="Create worker" isWide onClose={closeDialog}>
      <form class="form" noValidate onSubmit={(event) => void submit(event)}>
        <div class="field">
          <label for="create-name">Name</label>
          <input
            id="create-name"
            ref={nameField}
            class="input mono"
            autofocus
            autocomplete="off"
            spellcheck={false}
            value={name.value}
            aria-invalid={nameError !== null}
            aria-describedby="create-name-note"
            onFocus={(event) => event.currentTarget.select()}
            onInput={(event) => {
              name.value = event.currentTarget.value;
              problem.value = null;
            }}
          />
          <p id="create-name-note" class="field-note" data-error={nameError !== null} aria-live="polite">
            {nameError ?? NAME_HINT}
          </p>
        </div>

        <fieldset class="field">
          <legend>Template</legend>
          <div class="templates">
            {offered.value.map((offer) => (
              <TemplateCard
                key={offer.name}
                template={offer}
                isChosen={offer.name === template.value}
                onChoose={() => {
                  chosenTemplate.value = offer.name;
                }}
              />
            ))}
          </div>
          <FieldError message={problem.value?.fields.get("template_name")} />
        </fieldset>

        <div class="field">
          <label for="create-region">Region</label>
          <select
            id="create-region"
            class="select"
            value={region.value}
            onChange={(event) => {
              chosenRegion.value = event.currentTarget.value;
            }}
          >
            {regions.value.map((offer) => (
              <option key={offer.name} value={offer.name}>
                {offer.name}
              </option>
            ))}
          </select>
          <FieldError message={problem.value?.fields.get("aws_region")} />
        </div>

        {problem.value !== null && problem.value.fields.size === 0 && (
          <p class="form-problem" role="alert">
            {problem.value.message}
          </p>
        )}
        <div class="dialog-buttons">
          <button type="button" class="button" onClick={closeDialog}>
            Cancel
          </button>
          <button type="submit" class="button button-primary" aria-busy={isBusy.value} disabled={template.value === ""}>
            {isBusy.value && <Spinner />}
            Create
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function FieldError({ message }: { message: string | undefined }) {
  if (message === undefined) return null;
  return (
    <p class="field-note" data-error role="alert">
      {message}
    </p>
  );
}

interface TemplateCardProps {
  readonly template: WorkerTemplate;
  readonly isChosen: boolean;
  readonly onChoose: () => void;
}

function TemplateCard({ template, isChosen, onChoose }: TemplateCardProps) {
  const nameId = `template-${template.name}`;
  const specsId = `${nameId}-specs`;
  const runsId = `${nameId}-runs`;
  return (
    <label class="template" title={template.description}>
      <input
        type="radio"
        name="template"
        value={template.name}
        checked={isChosen}
        aria-labelledby={nameId}
        aria-describedby={`${specsId} ${runsId}`}
        onChange={onChoose}
      />
      <span class="template-text">
        <span class="template-head">
          <span id={nameId} class="template-name">
            {template.name}
          </span>
          <span class="template-type mono">{template.instance_type}</span>
        </span>
        <span id={specsId} class="template-specs">
          {template.cpu} vCPU · {template.memory_gb} GB RAM · {template.disk_gb} GB disk · {template.max_nodes} nodes
        </span>
        <span id={runsId} class="template-specs">
          {hasKvm(template) ? "Runs virtual machines (KVM)" : "No KVM: no virtual machines, light nodes only"}
        </span>
      </span>
      <span class="template-price">
        {formatUsd(template.usd_per_hour)}
        <span class="template-unit">/h</span>
      </span>
    </label>
  );
}
