import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Mark, Spinner } from "../kit/icons";
import { getSignInWays } from "./api";
import { signIn } from "./session";
import { PROVIDER_PAGE, takeRefusal } from "./sign-in-refusal";

export function SignIn() {
  const field = useRef<HTMLInputElement>(null);
  const token = useSignal("");
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);
  const provider = useSignal<string | null>(null);
  const refusal = useSignal(takeRefusal());

  useEffect(() => {
    getSignInWays().then(
      (ways) => {
        provider.value = ways.identity_provider;
      },
      () => undefined, // a token signs in all the same
    );
  }, [provider]);

  async function submit(event: Event): Promise<void> {
    event.preventDefault();
    isBusy.value = true;
    problem.value = null;
    try {
      await signIn(token.value.trim());
    } catch (error) {
      problem.value = error instanceof Error ? error.message : String(error);
      field.current?.select();
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <main class="sign-in">
      <form class="sign-in-card" onSubmit={(event) => void submit(event)}>
        <Mark />
        <h1>Lablet Cloud Manager</h1>
        <p class="sign-in-lead">Sign in to see and run your fleet.</p>
        {refusal.value !== null && (
          <p class="field-note sign-in-refusal" data-error role="alert">
            {refusal.value}
          </p>
        )}
        {provider.value !== null && (
          <a class="button sign-in-provider" href={PROVIDER_PAGE}>
            Sign in with {provider.value}
          </a>
        )}
        <div class="field">
          <label for="access-token">Access token</label>
          <input
            id="access-token"
            ref={field}
            class="input mono"
            type="password"
            autocomplete="current-password"
            autofocus
            required
            value={token.value}
            aria-invalid={problem.value !== null}
            aria-describedby="access-token-note"
            onInput={(event) => {
              token.value = event.currentTarget.value;
            }}
          />
          {problem.value !== null && (
            <p id="access-token-note" class="field-note" data-error role="alert">
              {problem.value}
            </p>
          )}
        </div>
        <button type="submit" class="button button-primary" aria-busy={isBusy.value}>
          {isBusy.value && <Spinner />}
          Sign in
        </button>
        <p class="sign-in-help">
          The link that <code>lcm up</code> prints signs in once, within ten minutes; <code>lcm link</code> prints
          another. An administrator makes access tokens with <code>lcm token create</code>.
        </p>
      </form>
    </main>
  );
}
