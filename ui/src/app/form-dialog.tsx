/** A dialog that sends a request and closes when the server accepts it. */

import { type ReadonlySignal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { Dialog } from "../kit/dialog";
import { Spinner } from "../kit/icons";
import { closeDialog } from "./commands";

export function useSubmission() {
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);

  /** Returns whether the request was accepted. */
  async function send(request: () => Promise<void>): Promise<boolean> {
    isBusy.value = true;
    problem.value = null;
    try {
      await request();
      closeDialog();
      return true;
    } catch (error) {
      problem.value = error instanceof Error ? error.message : String(error);
      return false;
    } finally {
      isBusy.value = false;
    }
  }

  return { problem, isBusy, send };
}

interface FormDialogProps {
  readonly title: string;
  readonly submitLabel: string;
  readonly isBusy: ReadonlySignal<boolean>;
  /** Left out where a field shows the problem itself. */
  readonly problem?: ReadonlySignal<string | null>;
  readonly onSubmit: () => void;
  readonly otherButton?: ComponentChildren;
  readonly isWide?: boolean;
  readonly isDangerous?: boolean;
  readonly children: ComponentChildren;
}

export function FormDialog(props: FormDialogProps) {
  const { title, submitLabel, isBusy, problem, onSubmit, otherButton, isWide, isDangerous, children } = props;
  const shownProblem = problem?.value ?? null;
  return (
    <Dialog title={title} isWide={isWide ?? false} onClose={closeDialog}>
      <form
        class="form"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          if (!isBusy.value) onSubmit();
        }}
      >
        {children}
        {shownProblem !== null && (
          <p class="form-problem" role="alert">
            {shownProblem}
          </p>
        )}
        <div class="dialog-buttons">
          {otherButton}
          <button type="button" class="button" onClick={closeDialog}>
            Cancel
          </button>
          <button
            type="submit"
            class={isDangerous === true ? "button button-danger" : "button button-primary"}
            aria-busy={isBusy.value}
          >
            {isBusy.value && <Spinner />}
            {submitLabel}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
