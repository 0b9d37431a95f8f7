/**
 * Timeslots in the zone they were booked in, and what a user types in the browser's zone. A time on the page
 * always has its zone beside it.
 */

import type { Timeslot } from "../../generated/api";

const DAY_MS = 86_400_000;

export const LOCAL_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

interface ZoneFormats {
  readonly day: Intl.DateTimeFormat;
  readonly year: Intl.DateTimeFormat;
  readonly time: Intl.DateTimeFormat;
}

const known = new Map<string, ZoneFormats>();

function formatsOf(zone: string): ZoneFormats {
  const found = known.get(zone);
  if (found !== undefined) return found;
  const made = makeFormats(zone);
  known.set(zone, made);
  return made;
}

function makeFormats(zone: string): ZoneFormats {
  try {
    return {
      day: new Intl.DateTimeFormat(undefined, { weekday: "short", month: "short", day: "numeric", timeZone: zone }),
      year: new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric", timeZone: zone }),
      time: new Intl.DateTimeFormat(undefined, { timeStyle: "short", hourCycle: "h23", timeZone: zone }),
    };
  } catch {
    // A zone that this browser does not know.
    return makeFormats("UTC");
  }
}

/** The day: "Today", "Tomorrow", "Thu, Nov 19", or with its year. */
export function formatDay(at: string, zone: string, now: number): string {
  const { day, year } = formatsOf(zone);
  const moment = new Date(at);
  const name = year.format(moment);
  if (name === year.format(now)) return "Today";
  if (name === year.format(now + DAY_MS)) return "Tomorrow";
  const isNear = Math.abs(moment.getTime() - now) < 180 * DAY_MS;
  return isNear ? day.format(moment) : name;
}

export function formatTime(at: string, zone: string): string {
  return formatsOf(zone).time.format(new Date(at));
}

/** "09:00–11:00", and "22:00–01:00 +1 d" where it ends on the next day. */
export function formatTimes({ start, end, zone }: Timeslot): string {
  const { year } = formatsOf(zone);
  const days = Math.round((Date.parse(year.format(new Date(end))) - Date.parse(year.format(new Date(start)))) / DAY_MS);
  return `${formatTime(start, zone)}–${formatTime(end, zone)}${days > 0 ? ` +${days} d` : ""}`;
}

/** "Today 09:00–11:00". */
export function formatSlot(timeslot: Timeslot, now: number): string {
  return `${formatDay(timeslot.start, timeslot.zone, now)} ${formatTimes(timeslot)}`;
}

/** "Europe/Berlin" as "Berlin": the whole name is the tooltip. */
export function shortZone(zone: string): string {
  return (zone.split("/").at(-1) ?? zone).replaceAll("_", " ");
}

export function minutesOf({ start, end }: Timeslot): number {
  return Math.round((Date.parse(end) - Date.parse(start)) / 60_000);
}

/** Two hours as "2 h", 90 minutes as "1 h 30 min". */
export function formatMinutes(minutes: number): string {
  const hours = Math.floor(minutes / 60);
  const rest = minutes % 60;
  if (hours === 0) return `${rest} min`;
  return rest === 0 ? `${hours} h` : `${hours} h ${rest} min`;
}

/** What a datetime-local field shows for this moment. */
export function toLocalInput(moment: number): string {
  const date = new Date(moment);
  const two = (value: number) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** The moment that a datetime-local field names; null for none, or for one that clocks skip. */
export function fromLocalInput(text: string): number | null {
  const moment = new Date(text).getTime();
  if (text === "" || Number.isNaN(moment)) return null;
  // A time that does not exist, in the night in which clocks are set forward, becomes another one.
  return toLocalInput(moment) === text.slice(0, 16) ? moment : null;
}

/** The next full half hour that is at least this far ahead. */
export function nextHalfHour(now: number, aheadMinutes: number): number {
  const half = 30 * 60_000;
  return Math.ceil((now + aheadMinutes * 60_000) / half) * half;
}
