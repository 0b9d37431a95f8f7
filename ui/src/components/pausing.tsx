/** When the worker pauses, and what keeps it from that. */

import { useComputed } from "@preact/signals";
import { useCallback } from "preact/hooks";
import { now } from "../clock";
import { judgementOf } from "../explain";
import { formatExact } from "../format";
import type { Explanation, Hold, WorkerView } from "../generated/api";
import { holdNow, idleSign, mayBePaused, pauseSentence } from "../idle";
import type { WorkerEntry } from "../store";
import { Glyph } from "./icons";
import { Ago, Ticking } from "./time";

export function PausingSection({ entry, explanation }: { entry: WorkerEntry; explanation: Explanation | null }) {
  const worker = entry.worker.value;
  // A hold ends without an event of its own.
  const isHeld = useComputed(() => holdNow(entry.worker.value, now.value) !== null);
  if (!mayBePaused(worker)) return null;
  return (
    <section class="panel-section" aria-label="Pausing">
      <h3>Pausing</h3>
      <div class="box">
        <Outlook worker={worker} explanation={explanation} />
        {isHeld.value && worker.hold !== null && <HoldNote hold={worker.hold} />}
        <p class="box-note">
          {worker.last_activity_at === null ? (
            "Nobody has used it yet."
          ) : (
            <>
              Last used <Ago at={worker.last_activity_at} />.
            </>
          )}
        </p>
      </div>
    </section>
  );
}

function Outlook({ worker, explanation }: { worker: WorkerView; explanation: Explanation | null }) {
  const text = useCallback(
    (at: number) => pauseSentence(worker, judgementOf(worker, explanation), at),
    [worker, explanation],
  );
  return (
    <p class="outlook" data-testid="outlook">
      <Ticking text={text} />
    </p>
  );
}

function HoldNote({ hold }: { hold: Hold }) {
  return (
    <p class="hold-note" title={`Until ${formatExact(hold.until)}`}>
      <Glyph name="held" />
      <span>
        Held by <strong>{hold.by}</strong>
        {hold.reason !== "" && <>: {hold.reason}</>}
      </span>
    </p>
  );
}

const SIGN_MEANING = {
  held: "Kept running by a hold; time left",
  pausing: "Pauses unless used; time left",
} as const;

/** In a row: a hold, or a pause that is near. */
export function PauseSign({ entry }: { entry: WorkerEntry }) {
  // Words, not objects: a row is drawn again only when they change.
  const kind = useComputed(() => idleSign(entry.worker.value, now.value)?.kind ?? null);
  const text = useComputed(() => idleSign(entry.worker.value, now.value)?.text ?? "");
  if (kind.value === null) return null;
  return (
    <span
      class="pause-sign"
      data-sign={kind.value}
      data-color={kind.value === "held" ? "blue" : "orange"}
      title={SIGN_MEANING[kind.value]}
    >
      <Glyph name={kind.value} />
      <span class="visually-hidden">{SIGN_MEANING[kind.value]}</span>
      {text}
    </span>
  );
}
