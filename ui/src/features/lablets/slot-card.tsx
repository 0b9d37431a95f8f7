/** The time of a session, and the notice that it ends soon. Its height is that of its text without the notice. */

import { openSessionsDialog } from "../../app/commands";
import type { LabletSessionView, Timeslot } from "../../generated/api";
import { formatExact } from "../../kit/format";
import { canExtend, endsSoon, slotProgress } from "./model";
import { Ending, Zone } from "./session-badge";
import { formatDay, formatMinutes, formatTime, LOCAL_ZONE, minutesOf } from "./slot";
import { minute } from "./store";

export function SlotCard({ session }: { session: LabletSessionView }) {
  const timeslot = session.timeslot ?? usedTime(session);
  return (
    <section class="card slot-card" aria-label="Timeslot" data-color="purple" data-soon={endsSoon(session)}>
      {timeslot === null ? <NoSlot session={session} /> : <SlotBar session={session} timeslot={timeslot} />}
    </section>
  );
}

/** A session without a timeslot has its time from when it is ready. */
function usedTime({ ready_at: start, ends_at: end }: LabletSessionView): Timeslot | null {
  return start === null || end === null ? null : { start, end, zone: LOCAL_ZONE };
}

function NoSlot({ session }: { session: LabletSessionView }) {
  return (
    <p class="slot-none">
      <strong>As soon as possible</strong>, for {formatMinutes(session.max_duration_minutes)} from when it is ready.
    </p>
  );
}

function SlotBar({ session, timeslot }: { session: LabletSessionView; timeslot: Timeslot }) {
  const percent = Math.round(slotProgress(timeslot, minute.value) * 100);
  const { start, end, zone } = timeslot;
  return (
    <>
      <div class="slot-times">
        <SlotEnd at={start} zone={zone} />
        {endsSoon(session) ? (
          <Notice session={session} />
        ) : (
          <span class="slot-length">
            {formatMinutes(minutesOf(timeslot))} · <Zone zone={zone} />
          </span>
        )}
        <SlotEnd at={end} zone={zone} />
      </div>
      <div
        class="slot-bar"
        role="progressbar"
        aria-label="Passed of the timeslot"
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={percent}
      >
        <span style={{ width: `${percent}%` }} />
      </div>
    </>
  );
}

function SlotEnd({ at, zone }: { at: string; zone: string }) {
  return (
    <time dateTime={at} title={formatExact(at)}>
      <strong>{formatTime(at, zone)}</strong> <span class="slot-day">{formatDay(at, zone, minute.value)}</span>
    </time>
  );
}

function Notice({ session }: { session: LabletSessionView }) {
  return (
    <span class="slot-notice" role="status">
      <Ending session={session} />
      {canExtend(session) && (
        <button
          type="button"
          class="text-button slot-extend"
          onClick={() => openSessionsDialog("extend-sessions", [session.id])}
        >
          Extend…
        </button>
      )}
    </span>
  );
}
