import { EndingNotice } from "../features/lablets/ending-notice";
import { Glyph } from "../kit/icons";
import { session } from "./session";
import { dismiss, toasts } from "./toasts";

export function Toasts() {
  return (
    <div class="toasts">
      {session.value.kind === "signed-in" && <EndingNotice />}
      {toasts.value.map((toast) => (
        <div key={toast.id} class="toast" role="alert">
          <Glyph name="alert" />
          <div class="toast-text">
            <strong>{toast.title}</strong>
            <p>{toast.detail}</p>
          </div>
          <button type="button" class="icon-button" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
            <Glyph name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
