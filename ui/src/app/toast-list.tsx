import { EndingNotice } from "../features/lablets/ending-notice";
import { Glyph } from "../kit/icons";
import { session } from "./session";
import { dismiss, type Toast, toasts, undoLast } from "./toasts";

export function Toasts() {
  return (
    <div class="toasts">
      {session.value.kind === "signed-in" && <EndingNotice />}
      {toasts.value.map((toast) => (
        <ToastCard key={toast.id} toast={toast} />
      ))}
    </div>
  );
}

function ToastCard({ toast: { id, title, detail, undo } }: { toast: Toast }) {
  return (
    <div class={undo === null ? "toast" : "toast toast-done"} role={undo === null ? "alert" : "status"}>
      <Glyph name={undo === null ? "alert" : "check"} />
      <div class="toast-text">
        <strong>{title}</strong>
        <p>{detail}</p>
      </div>
      {undo !== null && (
        <button type="button" class="button button-small" title="Undo (u)" onClick={undoLast}>
          Undo
        </button>
      )}
      <button type="button" class="icon-button" aria-label="Dismiss" onClick={() => dismiss(id)}>
        <Glyph name="close" />
      </button>
    </div>
  );
}
