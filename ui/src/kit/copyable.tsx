import { type Signal, useSignal } from "@preact/signals";
import { Glyph } from "./icons";

const CONFIRMED_MS = 1_500;

interface Copying {
  /** For a moment after it was copied. */
  readonly isCopied: Signal<boolean>;
  readonly copy: () => Promise<void>;
}

function useCopying(text: string): Copying {
  const isCopied = useSignal(false);

  async function copy(): Promise<void> {
    await navigator.clipboard.writeText(text);
    isCopied.value = true;
    window.setTimeout(() => {
      isCopied.value = false;
    }, CONFIRMED_MS);
  }

  return { isCopied, copy };
}

/** A value that users copy. Browsers offer the clipboard to secure pages only. */
export function Copyable({ text }: { text: string }) {
  const { isCopied, copy } = useCopying(text);
  if (!window.isSecureContext) return <span class="mono">{text}</span>;
  return (
    <button type="button" class="copyable mono" title={`Copy ${text}`} onClick={() => void copy()}>
      <span>{text}</span>
      <Glyph name={isCopied.value ? "check" : "copy"} />
    </button>
  );
}

interface CopyButtonProps {
  /** What it copies: "password". */
  readonly name: string;
  readonly text: string;
}

/** Copies what is not shown, or shown beside it. */
export function CopyButton({ name, text }: CopyButtonProps) {
  const { isCopied, copy } = useCopying(text);
  if (!window.isSecureContext) return null;
  const label = `Copy the ${name}`;
  return (
    <button
      type="button"
      class="icon-button icon-button-small"
      title={label}
      aria-label={label}
      onClick={() => void copy()}
    >
      <Glyph name={isCopied.value ? "check" : "copy"} />
    </button>
  );
}
