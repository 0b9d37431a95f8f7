/** Opens the dialog for a new lab definition; disabled, with the reason, for people who may not add one. */

import { openDialog } from "../../app/commands";
import { denialFor } from "../../app/session";
import { Glyph } from "../../kit/icons";

export function AddDefinitionButton({ isPrimary = false }: { isPrimary?: boolean }) {
  const denial = denialFor("define");
  return (
    <button
      type="button"
      class={isPrimary ? "button button-primary" : "button"}
      disabled={denial !== null}
      title={denial ?? "From a topology that CML exports"}
      onClick={() => {
        openDialog.value = { kind: "add-definition" };
      }}
    >
      <Glyph name="plus" />
      Add definition…
    </button>
  );
}
