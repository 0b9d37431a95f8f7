/** Times and money as people read them. */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A length of time in its two largest units: "42s", "3m", "2h 05m", "5d 3h". */
export function formatDuration(milliseconds: number): string {
  const span = Math.max(0, milliseconds);
  if (span < MINUTE) return `${Math.floor(span / SECOND)}s`;
  if (span < HOUR) return `${Math.floor(span / MINUTE)}m`;
  if (span < DAY) {
    const minutes = Math.floor((span % HOUR) / MINUTE);
    return `${Math.floor(span / HOUR)}h ${String(minutes).padStart(2, "0")}m`;
  }
  const days = Math.floor(span / DAY);
  const hours = Math.floor((span % DAY) / HOUR);
  return days < 10 && hours > 0 ? `${days}d ${hours}h` : `${days}d`;
}

/** How long ago in one unit: "just now", "12 s ago", "3 min ago". */
export function formatAgo(at: number, now: number): string {
  const span = now - at;
  if (span < 3 * SECOND) return "just now";
  if (span < MINUTE) return `${Math.floor(span / SECOND)} s ago`;
  if (span < HOUR) return `${Math.floor(span / MINUTE)} min ago`;
  if (span < DAY) return `${Math.floor(span / HOUR)} h ago`;
  return `${Math.floor(span / DAY)} d ago`;
}

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long", hourCycle: "h23" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const dayOfYear = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

/** The full date and time with its zone, for tooltips. */
export function formatExact(at: string): string {
  return exact.format(new Date(at));
}

/** The time, with as much of its date as is needed to tell which day it was. */
export function formatMoment(at: string, now: number): string {
  const moment = new Date(at);
  const today = new Date(now);
  const time = clock.format(moment);
  if (moment.toDateString() === today.toDateString()) return time;
  const isThisYear = moment.getFullYear() === today.getFullYear();
  return `${(isThisYear ? day : dayOfYear).format(moment)} ${time}`;
}

const cents = new Intl.NumberFormat("en-US", { style: "currency", currency: "USD" });
const dollars = new Intl.NumberFormat("en-US", {
  style: "currency",
  currency: "USD",
  maximumFractionDigits: 0,
});

/** Small instances cost fractions of a cent per hour, which two digits would round away. */
export function formatUsd(amount: number): string {
  if (amount === 0 || amount >= 1) return cents.format(amount);
  return `$${amount.toFixed(4)}`;
}

const HOURS_PER_MONTH = 730;

export function formatUsdPerMonth(perHour: number): string {
  const amount = perHour * HOURS_PER_MONTH;
  return (amount < 100 ? cents : dollars).format(amount);
}

export function formatCount(count: number, noun: string): string {
  return `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
}
