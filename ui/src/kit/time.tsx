/** Times that tick. The tooltip shows the exact time. */

import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { now } from "./clock";
import { formatAgo, formatDuration, formatExact } from "./format";

interface TimeProps {
  /** ISO 8601. */
  readonly at: string;
}

/** "3 min ago". */
export function Ago({ at }: TimeProps) {
  const text = useMemo(() => computed(() => formatAgo(Date.parse(at), now.value)), [at]);
  return (
    <time dateTime={at} title={formatExact(at)}>
      {text}
    </time>
  );
}

/** "2h 05m": the time since. */
export function Age({ at }: TimeProps) {
  const text = useMemo(() => computed(() => formatDuration(now.value - Date.parse(at))), [at]);
  return (
    <time dateTime={at} title={formatExact(at)}>
      {text}
    </time>
  );
}

/** Text that depends on the time, rendered again only when it changes. */
export function Ticking({ text }: { text: (now: number) => string }) {
  const words = useMemo(() => computed(() => text(now.value)), [text]);
  return <>{words}</>;
}
