/** When the worker pauses, and what prevents it. */

import { useComputed } from "@preact/signals";
import { useCallback } from "preact/hooks";
import type { WorkerEntry } from "../../app/store";
import type { Explanation, Hold, WorkerView } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatExact } from "../../kit/format";
import { Glyph } from "../../kit/icons";
import { Ago, Ticking } from "../../kit/time";
import { pauseForecast } from "../worker/explain";
import { activeHold, canBePaused, pauseIndicator, pauseSentence } from "./idle";

export function PausingSection({ entry, explanation }: { entry: WorkerEntry; explanation: Explanation | null }) {
  const worker = entry.worker.value;
  // No event announces the end of a hold.
  const isHeld = useComputed(() => activeHold(entry.worker.value, now.value) !== null);
  if (!canBePaused(worker)) return null;
  return (
    <section class="panel-section" aria-label="Pausing">
      <h3>Pausing</h3>
      <div class="box">
        <Forecast worker={worker} explanation={explanation} />
        {isHeld.value && worker.hold !== null && <HoldNote hold={worker.hold} />}
        <p class="box-note">
          {worker.last_activity_at === null ? (
            "No activity recorded yet."
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

function Forecast({ worker, explanation }: { worker: WorkerView; explanation: Explanation | null }) {
  const text = useCallback(
    (at: number) => pauseSentence(worker, pauseForecast(worker, explanation), at),
    [worker, explanation],
  );
  return (
    <p class="pause-forecast" data-testid="pause-forecast">
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

const INDICATOR_MEANING = {
  held: "Held; time left",
  pausing: "Pauses unless used; time left",
} as const;

/** In a row: a hold, or a pause that is due soon. */
export function PauseIndicator({ entry }: { entry: WorkerEntry }) {
  // Strings, not objects: a row is rendered again only when they change.
  const kind = useComputed(() => pauseIndicator(entry.worker.value, now.value)?.kind ?? null);
  const text = useComputed(() => pauseIndicator(entry.worker.value, now.value)?.text ?? "");
  if (kind.value === null) return null;
  return (
    <span
      class="pause-indicator"
      data-indicator={kind.value}
      data-color={kind.value === "held" ? "blue" : "orange"}
      title={INDICATOR_MEANING[kind.value]}
    >
      <Glyph name={kind.value} />
      <span class="visually-hidden">{INDICATOR_MEANING[kind.value]}</span>
      {text}
    </span>
  );
}
