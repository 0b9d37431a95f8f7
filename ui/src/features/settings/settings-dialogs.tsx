import { useSignal } from "@preact/signals";
import { messageOf } from "../../app/api";
import { closeDialog, openDialog } from "../../app/commands";
import { FormDialog, useSubmission } from "../../app/form-dialog";
import { signOutEverywhere } from "../../app/session";
import * as api from "../../app/settings-api";
import { showError } from "../../app/toasts";
import type { BrowserSession, DiscoveryView, NewToken, TokenView, WorkerTemplate } from "../../generated/api";
import { ROLES } from "../../generated/rules";
import { Dialog } from "../../kit/dialog";
import { Secret } from "../../kit/secret";
import { DocumentDialog } from "./document-dialog";
import { settingsChanges } from "./settings";

type Document = Readonly<Record<string, unknown>>;

export function TemplateDialog({ name, isChanged }: { name: string; isChanged: boolean }) {
  async function load() {
    const { value, tag } = await api.readTemplate(name);
    return { value: value.template as unknown as Document, tag };
  }

  async function revert(tag: string): Promise<void> {
    try {
      await api.revertTemplate(name, tag);
      settingsChanges.value += 1;
      closeDialog();
    } catch (error) {
      showError(`Could not revert ${name}`, error);
    }
  }

  return (
    <DocumentDialog
      title={`Template ${name}`}
      load={load}
      save={(document, _, tag) => api.changeTemplate(document as unknown as WorkerTemplate, name, tag)}
      note="For new workers. Fields that differ from the templates file are stored over it."
      otherButton={(tag) =>
        isChanged && (
          <button type="button" class="button" onClick={() => void revert(tag)}>
            Revert to the file
          </button>
        )
      }
    />
  );
}

export function DiscoveryDialog() {
  async function load() {
    const { value, tag } = await api.readDiscovery();
    const { version: _, ...settings } = value;
    return { value: settings as Document, tag };
  }
  return (
    <DocumentDialog
      title="Discovery"
      load={load}
      save={(_, changed, tag) => api.changeDiscovery(changed as Partial<DiscoveryView>, tag)}
      note="null falls back to the worker controller's own settings. Applied within five minutes."
    />
  );
}

const DAYS: readonly (readonly [string, number | null])[] = [
  ["30 days", 30],
  ["90 days", 90],
  ["1 year", 365],
  ["never", null],
];
const DAY_SECONDS = 86_400;

export function NewTokenDialog() {
  const name = useSignal("");
  const role = useSignal<NewToken["role"]>("viewer");
  const days = useSignal<number | null>(90);
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);

  async function submit(): Promise<void> {
    isBusy.value = true;
    try {
      const expiry = days.peek() === null ? {} : { expires_in_seconds: (days.peek() ?? 0) * DAY_SECONDS };
      const created = await api.createToken({ name: name.peek().trim(), role: role.peek(), ...expiry });
      settingsChanges.value += 1;
      openDialog.value = { kind: "token-created", name: created.details.name, token: created.token };
    } catch (error) {
      problem.value = messageOf(error);
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <FormDialog
      title="New token"
      submitLabel="Create token"
      isBusy={isBusy}
      problem={problem}
      onSubmit={() => void submit()}
    >
      <div class="field">
        <label for="token-name">Name</label>
        <input
          id="token-name"
          class="input"
          autofocus
          autocomplete="off"
          spellcheck={false}
          value={name.value}
          onInput={({ currentTarget }) => {
            name.value = currentTarget.value;
            problem.value = null;
          }}
        />
        <p class="field-note">Timelines name it as the actor.</p>
      </div>
      <div class="field">
        <label for="token-role">Role</label>
        <select
          id="token-role"
          class="select"
          value={role.value}
          onChange={({ currentTarget }) => {
            role.value = currentTarget.value as NewToken["role"];
          }}
        >
          {ROLES.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </div>
      <div class="field">
        <label for="token-expiry">Expires after</label>
        <select
          id="token-expiry"
          class="select"
          value={String(days.value)}
          onChange={({ currentTarget }) => {
            days.value = currentTarget.value === "null" ? null : Number(currentTarget.value);
          }}
        >
          {DAYS.map(([label, count]) => (
            <option key={label} value={String(count)}>
              {label}
            </option>
          ))}
        </select>
      </div>
    </FormDialog>
  );
}

export function TokenCreatedDialog({ name, token }: { name: string; token: string }) {
  return (
    <Dialog title={`Token ${name}`} onClose={closeDialog}>
      <p class="dialog-text">
        Copy it now: <strong>it is not shown again</strong>, and LCM does not keep it.
      </p>
      <p>
        <Secret name="token" text={token} />
      </p>
      <div class="dialog-buttons">
        <button type="button" class="button button-primary" onClick={closeDialog}>
          Done
        </button>
      </div>
    </Dialog>
  );
}

export function RevokeDialog({ token }: { token: TokenView }) {
  const { problem, isBusy, send } = useSubmission();
  return (
    <FormDialog
      title={`Revoke ${token.name}?`}
      submitLabel="Revoke"
      isDangerous
      isBusy={isBusy}
      problem={problem}
      onSubmit={() =>
        void send(async () => {
          await api.revokeToken(token.id);
          settingsChanges.value += 1;
        })
      }
    >
      <p class="dialog-text">
        Requests with it are refused at once, and <strong>all users who signed in with it are signed out</strong> within
        seconds.
      </p>
    </FormDialog>
  );
}

export function SignOutEverywhereDialog() {
  const { problem, isBusy, send } = useSubmission();
  return (
    <FormDialog
      title="Sign out everywhere?"
      submitLabel="Sign out everywhere"
      isDangerous
      isBusy={isBusy}
      problem={problem}
      onSubmit={() => void send(signOutEverywhere)}
    >
      <p class="dialog-text">
        <strong>Every browser that is signed in as you is signed out</strong> within seconds, this one too. Tokens stay
        valid.
      </p>
    </FormDialog>
  );
}

export function SignOutPersonDialog({ browser: { principal_id: id, actor } }: { browser: BrowserSession }) {
  const { problem, isBusy, send } = useSubmission();

  function submit(): void {
    void send(async () => {
      if (id !== null) await api.signOutPerson(id);
      settingsChanges.value += 1;
    });
  }

  return (
    <FormDialog
      title={`Sign out ${actor}?`}
      submitLabel="Sign out"
      isDangerous
      isBusy={isBusy}
      problem={problem}
      onSubmit={submit}
    >
      <p class="dialog-text">
        <strong>Every browser that is signed in as {actor} is signed out</strong> within seconds. Tokens stay valid.
      </p>
    </FormDialog>
  );
}
