/** A bar for each day of the month: what its instances cost, and what its disks cost. */

import { useSignal } from "@preact/signals";
import type { CostDay, CostReport } from "../../generated/api";
import { formatSum } from "../../kit/format";
import { daysOf, formatDay, formatMonth } from "./cost";

export function CostByDay({ report }: { report: CostReport }) {
  const pointedAt = useSignal<string | null>(null);
  const days = daysOf(report);
  const most = Math.max(...report.days.map(({ usd }) => usd), 0);
  const shown = report.days.find(({ day }) => day === pointedAt.value) ?? null;
  if (report.days.length === 0) return null;
  return (
    <section class="cost-group cost-by-day">
      <header>
        <h2>By day, UTC</h2>
        <a class="text-button" href={`/api/cost?format=csv&by=day&month=${report.month}`} download>
          CSV by day
        </a>
      </header>
      <p class="cost-legend">
        {shown === null ? (
          <>
            <span class="cost-key">Instances</span>
            <span class="cost-key cost-key-disk">Disks</span>
            <span>{most === 0 ? "Nothing was used on any day" : `up to ${formatSum(most)} a day`}</span>
          </>
        ) : (
          <span>{described(shown)}</span>
        )}
      </p>
      <ol
        class="cost-days"
        aria-label={`Cost of each day in ${formatMonth(report.month)}`}
        onPointerLeave={() => {
          pointedAt.value = null;
        }}
      >
        {days.map((day, index) => (
          <li
            key={day?.day ?? index}
            onPointerEnter={() => {
              pointedAt.value = day?.day ?? null;
            }}
          >
            {day === null ? (
              <span class="visually-hidden">to come</span>
            ) : (
              <>
                <span class="visually-hidden">{described(day)}</span>
                <span class="cost-bar" style={{ height: `${most > 0 ? (day.usd / most) * 100 : 0}%` }}>
                  <span style={{ height: `${day.usd > 0 ? (day.usd_disk / day.usd) * 100 : 0}%` }} />
                </span>
              </>
            )}
            <span class="cost-day" aria-hidden="true">
              {index + 1}
            </span>
          </li>
        ))}
      </ol>
      {report.usd_of_unknown_day > 0 && (
        <p class="cost-legend">
          {formatSum(report.usd_of_unknown_day)} more in this month: of which days is not kept that long.
        </p>
      )}
    </section>
  );
}

function described(day: CostDay): string {
  const saved = day.usd_saved > 0 ? `, saved ${formatSum(day.usd_saved)}` : "";
  return `${formatDay(day.day)}: ${formatSum(day.usd)}, of it disks ${formatSum(day.usd_disk)}${saved}`;
}
