/** What is booked in a day or a week: the demand over the capacity, and every class and session as a block. */

import { computed, useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { usePolledAnswer } from "../../app/answer";
import { getCalendar } from "../../app/lablet-api";
import { page, query, replaceQuery, sessionHref, sessionsHref } from "../../app/router";
import { fleetChanges } from "../../app/store";
import type { CalendarEntry, SchedulingCalendar } from "../../generated/api";
import { formatCount } from "../../kit/format";
import { NewSessionLink } from "../lablets/sessions-page";
import { formatDay, formatTime, LOCAL_ZONE } from "../lablets/slot";
import { minute, sessionChanges, wantSessions } from "../lablets/store";
import {
  amountText,
  type Block,
  blocksOf,
  colorOfEntry,
  curveOf,
  type Days,
  DIMENSIONS,
  type Dimension,
  daysFrom,
  inView,
  percentAt,
  queryOfDays,
  rangeOf,
  shifted,
  ticksOf,
  type View,
} from "./calendar";

const changes = computed(() => sessionChanges.value + fleetChanges.value);
const INTERVAL = { everyMs: 60_000, afterChangeMs: 2_000 };

/** By the minute: midnight moves the calendar of today. */
const days = computed<Days>(() =>
  daysFrom(page.value.id === "calendar" ? query.value : new URLSearchParams(), minute.value),
);

function choose(next: Days): void {
  replaceQuery(queryOfDays(next, minute.peek()));
}

export function CalendarPage() {
  useEffect(wantSessions, []);
  const shown = days.value;
  const { begin, end, stepMinutes } = rangeOf(shown);
  const { value, problem } = usePolledAnswer(
    `${shown.view} ${begin}`,
    () => getCalendar(begin, end, stepMinutes),
    INTERVAL,
    changes,
  );
  return (
    <>
      <div class="page-head">
        <h1>Calendar</h1>
        <NewSessionLink />
      </div>
      <DaysBar days={shown} />
      {problem.value !== null && (
        <section class="notice" data-color="orange" role="status">
          <p>The calendar could not be fetched: {problem.value}</p>
        </section>
      )}
      {value.value === null ? (
        <p class="field-note">{problem.value === null ? "Loading…" : ""}</p>
      ) : (
        <Plan days={shown} calendar={value.value} />
      )}
    </>
  );
}

const VIEWS: readonly (readonly [View, string])[] = [
  ["day", "Day"],
  ["week", "Week"],
];

function DaysBar({ days: shown }: { days: Days }) {
  const unit = shown.view;
  return (
    <div class="calendar-bar">
      <fieldset class="chips" aria-label="Time shown">
        {VIEWS.map(([view, label]) => (
          <button
            key={view}
            type="button"
            class="chip"
            aria-pressed={view === shown.view}
            onClick={() => choose(inView(shown, view))}
          >
            {label}
          </button>
        ))}
      </fieldset>
      <div class="calendar-steps">
        <button
          type="button"
          class="button button-small"
          aria-label={`Previous ${unit}`}
          onClick={() => choose(shifted(shown, -1))}
        >
          ‹
        </button>
        <button
          type="button"
          class="button button-small"
          onClick={() => choose(daysFrom(new URLSearchParams({ view: unit }), minute.peek()))}
        >
          Today
        </button>
        <button
          type="button"
          class="button button-small"
          aria-label={`Next ${unit}`}
          onClick={() => choose(shifted(shown, 1))}
        >
          ›
        </button>
      </div>
      <h2 class="calendar-title" aria-live="polite">
        {titleOf(shown)}
      </h2>
      <span class="zone">{LOCAL_ZONE}</span>
    </div>
  );
}

function titleOf({ view, first }: Days): string {
  const begin = dayName(first);
  if (view === "day") return begin;
  return `${begin} – ${dayName(shifted({ view: "day", first }, 6).first)}`;
}

function dayName(moment: number): string {
  return formatDay(new Date(moment).toISOString(), LOCAL_ZONE, minute.peek());
}

function Plan({ days: shown, calendar }: { days: Days; calendar: SchedulingCalendar }) {
  const blocks = useMemo(() => blocksOf(calendar.entries, shown, minute.peek()), [calendar, shown]);
  const rows = Math.max(1, ...blocks.map(({ lane }) => lane + 1));
  return (
    <section class="calendar" aria-label="Bookings">
      <Demand days={shown} calendar={calendar} />
      <div class="calendar-plan" style={{ "--rows": rows }}>
        <Grid days={shown} />
        <ul class="calendar-blocks" aria-label="Classes and sessions">
          {blocks.map((block) => (
            <BlockItem key={block.entry.id} block={block} />
          ))}
        </ul>
        {blocks.length === 0 && <p class="calendar-empty">Nothing is booked here.</p>}
      </div>
    </section>
  );
}

/** The lines of hours or days, and of now. */
function Grid({ days: shown }: { days: Days }) {
  const range = rangeOf(shown);
  const isNow = useComputed(() => minute.value >= range.begin && minute.value < range.end).value;
  return (
    <div class="calendar-grid" aria-hidden="true">
      {ticksOf(shown).map(({ at, percent }) => (
        <span key={at} class="calendar-tick" style={{ left: `${percent}%` }}>
          {shown.view === "week" ? dayName(at) : formatTime(new Date(at).toISOString(), LOCAL_ZONE)}
        </span>
      ))}
      {isNow && <span class="calendar-now" style={{ left: `${percentAt(range, minute.value)}%` }} />}
    </div>
  );
}

function BlockItem({ block: { entry, left, width, barLeft, barWidth, lane } }: { block: Block }) {
  const times = timesOf(entry);
  const seats = formatCount(entry.seats, "seat");
  return (
    <li
      class="calendar-block"
      data-entry-id={entry.id}
      data-color={colorOfEntry(entry)}
      style={{ left: `${left}%`, width: `${width}%`, "--lane": lane }}
    >
      <a
        href={entry.is_batch ? sessionsHref(`show=all&class=${encodeURIComponent(entry.id)}`) : sessionHref(entry.id)}
        title={`${entry.name}: ${seats} of ${entry.definition_name}, ${times}`}
      >
        <span class="calendar-time" style={{ marginLeft: `${barLeft}%`, width: `${barWidth}%` }} />
        <span class="calendar-name">{entry.name}</span>
        <span class="calendar-about">
          {entry.is_batch && `${seats} · `}
          {times}
        </span>
      </a>
    </li>
  );
}

function timesOf({ start, end }: CalendarEntry): string {
  const from = formatTime(start, LOCAL_ZONE);
  return end === null ? `from ${from}` : `${from}–${formatTime(end, LOCAL_ZONE)}`;
}

/** The demand as an area under the line of the capacity; hatched where it is above. */
function Demand({ days: shown, calendar }: { days: Days; calendar: SchedulingCalendar }) {
  const dimension = useSignal<Dimension>("memory_gb");
  const chosen = dimension.value;
  const { bars, peak, isOver } = curveOf(calendar.steps, shown, chosen);
  return (
    <figure class="demand" data-over={isOver}>
      <figcaption class="demand-head">
        <select
          class="select select-small"
          aria-label="Demand of"
          value={chosen}
          onChange={({ currentTarget }) => {
            dimension.value = currentTarget.value as Dimension;
          }}
        >
          {Object.entries(DIMENSIONS).map(([name, { label }]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
        <span data-testid="peak">
          {peak === null
            ? "No demand from now on."
            : `At most ${amountText(peak.demand[chosen], chosen)} of ${amountText(peak.capacity[chosen], chosen)}, at ` +
              `${shown.view === "week" ? `${dayName(Date.parse(peak.at))} ` : ""}${formatTime(peak.at, LOCAL_ZONE)}; ` +
              `it takes ${formatCount(peak.workers_needed, "worker")}.`}
        </span>
      </figcaption>
      <svg class="demand-chart" viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
        <defs>
          <pattern id="over" width="1" height="4" patternUnits="userSpaceOnUse" patternTransform="skewX(-20)">
            <rect class="demand-hatch" width="0.4" height="4" />
          </pattern>
        </defs>
        {bars.map(({ at, left, width, demand, capacity }) => (
          <g key={at}>
            <rect class="demand-area" x={left} y={100 - demand} width={width} height={demand} />
            {demand > capacity && (
              <rect x={left} y={100 - demand} width={width} height={demand - capacity} fill="url(#over)" />
            )}
            <path class="demand-capacity" d={`M${left} ${100 - capacity}h${width}`} />
          </g>
        ))}
      </svg>
    </figure>
  );
}
