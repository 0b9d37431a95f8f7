import { useSignal } from "@preact/signals";
import { CopyButton } from "./copyable";

interface SecretProps {
  /** What it is, for the names of its buttons: "password". */
  readonly name: string;
  readonly text: string;
}

/** A secret that is shown on request only; it is copied without being shown. */
export function Secret({ name, text }: SecretProps) {
  const isShown = useSignal(false);
  const action = isShown.value ? "Hide" : "Show";
  return (
    <span class="secret">
      <span class="secret-text mono">{isShown.value ? text : "••••••••"}</span>
      <button
        type="button"
        class="button button-tiny"
        aria-label={`${action} the ${name}`}
        onClick={() => {
          isShown.value = !isShown.value;
        }}
      >
        {action}
      </button>
      <CopyButton name={name} text={text} />
    </span>
  );
}
