/** Edits a setting as the document that the API takes: what changes is shown before it is saved. */

import { useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { ApiError, messageOf, type Read } from "../../app/api";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { changedFields, formatted, parsed, settingsChanges } from "./settings";

type Document = Readonly<Record<string, unknown>>;

interface DocumentDialogProps {
  readonly title: string;
  readonly load: () => Promise<Read<Document>>;
  /** `changed` has the fields that differ only. */
  readonly save: (document: Document, changed: Document, tag: string) => Promise<unknown>;
  readonly note: string;
  readonly otherButton?: (tag: string) => ComponentChildren;
}

export function DocumentDialog({ title, load, save, note, otherButton }: DocumentDialogProps) {
  const base = useSignal<Read<Document> | null>(null);
  const text = useSignal("");
  const fields = useSignal<ReadonlyMap<string, string>>(new Map());
  const { problem, isBusy, send } = useSubmission();
  const result = useComputed(() => parsed(text.value));
  const changes = useComputed(() =>
    base.value === null || "mistake" in result.value ? [] : changedFields(base.value.value, result.value.document),
  );

  async function fetchBase(): Promise<void> {
    try {
      const found = await load();
      if (base.peek() === null) text.value = formatted(found.value);
      base.value = found;
    } catch (error) {
      problem.value = messageOf(error);
    }
  }
  useEffect(() => void fetchBase(), []);

  async function submit(): Promise<void> {
    const read = base.peek();
    const edited = result.peek();
    if (read === null) return;
    if ("mistake" in edited) {
      problem.value = edited.mistake;
      return;
    }
    const names = changes.peek().map(({ name }) => name);
    const changed = Object.fromEntries(names.map((name) => [name, edited.document[name] ?? null]));
    fields.value = new Map();
    await send(async () => {
      try {
        await save(edited.document, changed, read.tag);
        settingsChanges.value += 1;
      } catch (error) {
        if (error instanceof ApiError) fields.value = error.fields;
        // Another user was faster: what is edited stays, and is compared with what it would replace now.
        if (error instanceof ApiError && error.status === 412) await fetchBase();
        throw error;
      }
    });
  }

  return (
    <FormDialog
      title={title}
      isWide
      submitLabel="Save"
      isBusy={isBusy}
      problem={problem}
      otherButton={base.value !== null && otherButton?.(base.value.tag)}
      onSubmit={() => void submit()}
    >
      <div class="field">
        <label for="document">Settings as JSON</label>
        <textarea
          id="document"
          class="input textarea mono document"
          rows={14}
          spellcheck={false}
          aria-describedby="document-note"
          aria-invalid={"mistake" in result.value && base.value !== null}
          disabled={base.value === null}
          value={text.value}
          onInput={({ currentTarget }) => {
            text.value = currentTarget.value;
            problem.value = null;
          }}
        />
        <p id="document-note" class="field-note">
          {base.value !== null && "mistake" in result.value ? result.value.mistake : note}
        </p>
      </div>
      {changes.value.length > 0 && (
        <section aria-label="What changes">
          <ul class="changes">
            {changes.value.map(({ name, before, after }) => (
              <li key={name}>
                <span class="mono">{name}</span> <del>{before ?? "nothing"}</del> → <ins>{after ?? "nothing"}</ins>
                {fields.value.has(name) && <span class="change-problem">{fields.value.get(name)}</span>}
              </li>
            ))}
          </ul>
        </section>
      )}
    </FormDialog>
  );
}
