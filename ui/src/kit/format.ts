/** Times and money as text. */

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

/** The time since then in one unit: "just now", "12 s ago", "3 min ago". */
export function formatAgo(at: number, now: number): string {
  const span = now - at;
  if (span < 3 * SECOND) return "just now";
  if (span < MINUTE) return `${Math.floor(span / SECOND)} s ago`;
  if (span < HOUR) return `${Math.floor(span / MINUTE)} min ago`;
  if (span < DAY) return `${Math.floor(span / HOUR)} h ago`;
  return `${Math.floor(span / DAY)} d ago`;
}

/** The remaining time, rounded up: "40 s", "12 min", "2 h 5 min", "3 d 4 h". */
export function formatRemaining(milliseconds: number): string {
  const seconds = Math.ceil(Math.max(0, milliseconds) / SECOND);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return twoUnits(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.ceil(minutes / 60);
  return twoUnits(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** The remaining time in one unit, where space is short. */
export function formatRemainingShort(milliseconds: number): string {
  const hours = Math.ceil(milliseconds / HOUR);
  if (milliseconds <= HOUR - MINUTE) return formatRemaining(milliseconds);
  return hours < 24 ? `${hours} h` : `${Math.ceil(milliseconds / DAY)} d`;
}

function twoUnits(large: number, unit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smallUnit}`;
}

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long", hourCycle: "h23" });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
const minute = new Intl.DateTimeFormat(undefined, { timeStyle: "short", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const dayOfYear = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

/** The full date and time with its zone, for tooltips. */
export function formatExact(at: string): string {
  return exact.format(new Date(at));
}

/** The time, with as much of its date as identifies the day. */
export function formatMoment(at: string, now: number): string {
  return withDay(new Date(at), clock, now);
}

/** The time without seconds, for future times. */
export function formatUntil(at: number, now: number): string {
  return withDay(new Date(at), minute, now);
}

function withDay(moment: Date, format: Intl.DateTimeFormat, now: number): string {
  const today = new Date(now);
  const time = format.format(moment);
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

/** Sums: cents are enough, and large sums need none. */
export function formatSum(amount: number): string {
  if (amount > 0 && amount < 0.01) return "<$0.01";
  return (amount < 1_000 ? cents : dollars).format(amount);
}

const HOURS_PER_MONTH = 730;

export function formatUsdPerMonth(perHour: number): string {
  const amount = perHour * HOURS_PER_MONTH;
  return (amount < 100 ? cents : dollars).format(amount);
}

/** "512 B", "34 kB", "1.2 MB". */
export function formatBytes(bytes: number): string {
  if (bytes < 1_000) return `${bytes} B`;
  if (bytes < 999_500) return `${Math.round(bytes / 1_000)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

export function formatCount(count: number, noun: string): string {
  return `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
}
