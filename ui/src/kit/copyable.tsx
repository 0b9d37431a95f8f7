import { useSignal } from "@preact/signals";
import { Glyph } from "./icons";

const CONFIRMED_MS = 1_500;

/** A value that users copy. Browsers offer the clipboard to secure pages only. */
export function Copyable({ text }: { text: string }) {
  const isCopied = useSignal(false);
  if (!window.isSecureContext) return <span class="mono">{text}</span>;

  async function copy(): Promise<void> {
    await navigator.clipboard.writeText(text);
    isCopied.value = true;
    window.setTimeout(() => {
      isCopied.value = false;
    }, CONFIRMED_MS);
  }

  return (
    <button type="button" class="copyable mono" title={`Copy ${text}`} onClick={() => void copy()}>
      <span>{text}</span>
      <Glyph name={isCopied.value ? "check" : "copy"} />
    </button>
  );
}
