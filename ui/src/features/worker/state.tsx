/** The status of a worker, why it has it and what happens next. */

import { desiredStatus, type WorkerEntry } from "../../app/store";
import type { Explanation } from "../../generated/api";
import { statusInfo } from "./model";
import { DesiredHint, StatusBadge } from "./status-badge";
import { Why } from "./why";

export function State({ entry, explanation }: { entry: WorkerEntry; explanation: Explanation | null }) {
  const worker = entry.worker.value;
  return (
    <section class="state" data-color={statusInfo(worker.status).color} aria-label="Why and what next">
      <span class="status-line">
        <StatusBadge status={worker.status} />
        <DesiredHint status={worker.status} desired={desiredStatus(entry)} />
      </span>
      <Why worker={worker} explanation={explanation} />
    </section>
  );
}
