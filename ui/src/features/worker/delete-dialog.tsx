import { closeDialog, sendActions } from "../../app/commands";
import type { WorkerEntry } from "../../app/store";
import { Dialog } from "../../kit/dialog";

export function DeleteDialog({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  return (
    <Dialog title={`Delete ${worker.name}?`} onClose={closeDialog}>
      <p class="dialog-text">
        {worker.ec2_instance_id === null ? (
          "Its instance"
        ) : (
          <>
            Instance <span class="mono">{worker.ec2_instance_id}</span>
          </>
        )}{" "}
        is terminated and <strong>its disk is lost</strong>, with every lab on it. This cannot be undone. The record
        stays for the audit.
      </p>
      <div class="dialog-buttons">
        <button type="button" class="button" autofocus onClick={closeDialog}>
          Cancel
        </button>
        <button
          type="button"
          class="button button-danger"
          onClick={() => {
            closeDialog();
            void sendActions([entry], "delete");
          }}
        >
          Delete worker
        </button>
      </div>
    </Dialog>
  );
}
