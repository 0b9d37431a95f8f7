import { computed } from "@preact/signals";
import { useCallback, useMemo } from "preact/hooks";
import type { LabletSessionView, SessionStatus, Timeslot } from "../../generated/api";
import { formatExact } from "../../kit/format";
import { Ticking } from "../../kit/time";
import { countdown, endingText, endsSoon, sessionInfo } from "./model";
import { formatSlot, LOCAL_ZONE } from "./slot";
import { minute } from "./store";

export function SessionBadge({ status }: { status: SessionStatus }) {
  const { label, color, moving, meaning, phase } = sessionInfo(status);
  return (
    <span class="badge" data-color={color} data-moving={moving} data-hollow={phase === "ended"} title={meaning}>
      <span class="dot" />
      {label}
    </span>
  );
}

/** The timeslot in the zone it was booked in; the tooltip has it in the browser's zone. */
export function SlotText({ timeslot }: { timeslot: Timeslot }) {
  const text = useMemo(() => computed(() => formatSlot(timeslot, minute.value)), [timeslot]);
  return (
    <time dateTime={timeslot.start} title={`${formatExact(timeslot.start)} – ${formatExact(timeslot.end)}`}>
      {text}
    </time>
  );
}

/** The zone of a timeslot, marked where it is not the browser's. */
export function Zone({ zone }: { zone: string }) {
  const isOther = zone !== LOCAL_ZONE;
  return (
    <span class="zone" data-other={isOther} title={isOther ? `Booked in ${zone}; your zone is ${LOCAL_ZONE}` : zone}>
      {zone}
    </span>
  );
}

export function Countdown({ session }: { session: LabletSessionView }) {
  const text = useCallback((now: number) => countdown(session, now), [session]);
  return (
    <span class="countdown" data-soon={endsSoon(session)}>
      <Ticking text={text} />
    </span>
  );
}

/** "Ends in 9 min", counting down. */
export function Ending({ session }: { session: LabletSessionView }) {
  const text = useCallback((now: number) => endingText(session, now), [session]);
  return <Ticking text={text} />;
}
