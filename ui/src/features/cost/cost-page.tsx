/** The cost page: cost now, this month, and saved by pausing; by worker, template and region. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { useAnswer } from "../../app/answer";
import * as api from "../../app/api";
import { startPolling } from "../../app/polling";
import { query, replaceQuery } from "../../app/router";
import type { CostLine, CostReport } from "../../generated/api";
import { formatSum, formatUsd, formatUsdPerMonth } from "../../kit/format";
import { Loading } from "../../kit/loading";
import { WorkerLink } from "../scaling/scaling-page";
import { byCost, costReport, formatDisks, formatHours, formatMonth, shareOf } from "./cost";
import { CostByDay } from "./cost-by-day";

const INTERVAL = { everyMs: 60_000, afterChangeMs: 3_000 };

/** Poll the report while it is shown; returns the error of the last attempt, or null. */
export function useCost(): string | null {
  const problem = useSignal<string | null>(null);
  useEffect(
    () =>
      startPolling(() => {
        api.getCost().then(
          (report) => {
            costReport.value = report;
            problem.value = null;
          },
          (error: unknown) => {
            problem.value = error instanceof Error ? error.message : String(error);
          },
        );
      }, INTERVAL),
    [],
  );
  return problem.value;
}

export function Cost() {
  const latestProblem = useCost();
  const latest = costReport.value;
  const chosen = query.value.get("month");
  const isPast = chosen !== null && chosen !== latest?.month;
  const past = useAnswer<CostReport | null>(isPast ? chosen : "", () =>
    isPast ? api.getCost(chosen) : Promise.resolve(null),
  );
  const report = isPast ? past.value.value : latest;
  const problem = isPast ? past.problem.value : latestProblem;
  return (
    <>
      <div class="page-head">
        <h1>Cost</h1>
        {latest !== null && (
          <div class="page-actions">
            <MonthSelect months={latest.months} value={isPast ? chosen : latest.month} latest={latest.month} />
            <a class="button" href={`/api/cost?format=csv&month=${isPast ? chosen : latest.month}`} download>
              CSV
            </a>
          </div>
        )}
      </div>
      <p class="page-lead">
        Instances at the templates' prices for the hours that they ran, and disks from launch to termination, those of
        stopped workers too.
      </p>
      {problem !== null && (
        <p class="panel-note" role="status">
          The cost could not be fetched: {problem}
        </p>
      )}
      {report === null ? problem === null && <Loading /> : <Report report={report} isPast={isPast} />}
    </>
  );
}

interface MonthSelectProps {
  readonly months: readonly string[];
  readonly value: string;
  readonly latest: string;
}

function MonthSelect({ months, value, latest }: MonthSelectProps) {
  return (
    <select
      class="select select-small"
      aria-label="Month, UTC"
      value={value}
      onChange={({ currentTarget }) =>
        replaceQuery(currentTarget.value === latest ? "" : `month=${currentTarget.value}`)
      }
    >
      {[...new Set([...months, value])].map((month) => (
        <option key={month} value={month}>
          {formatMonth(month)}
        </option>
      ))}
    </select>
  );
}

function Report({ report, isPast }: { report: CostReport; isPast: boolean }) {
  const { total } = report;
  return (
    <>
      <dl class="summary summary-cells cost-cells">
        {!isPast && <Figure label="Now" value={formatUsd(total.usd_per_hour)} unit="per hour" />}
        {!isPast && <Figure label="At this rate" value={formatUsdPerMonth(total.usd_per_hour)} unit="a month" />}
        <Figure
          label={isPast ? formatMonth(report.month) : "This month so far"}
          value={formatSum(total.usd_this_month)}
          unit={formatHours(total.running_hours_this_month)}
        />
        <Figure
          label="Of it for disks"
          value={total.usd_disk_this_month === null ? "unknown" : formatSum(total.usd_disk_this_month)}
          unit={total.unknown_disks === 0 ? "" : `+ ${total.unknown_disks.toLocaleString("en-US")} unknown`}
        />
        <Figure
          label="Saved by pausing"
          value={formatSum(total.usd_saved_this_month)}
          unit={formatHours(total.paused_hours_this_month)}
        />
      </dl>
      <CostByDay report={report} />
      <div class="cost-groups">
        <Lines title="By worker" lines={report.by_worker} total={total} name={(key) => <WorkerLink id={key} />} />
        <Lines title="By template" lines={byCost(report.by_template)} total={total} name={(key) => key} />
        <Lines title="By region" lines={byCost(report.by_region)} total={total} name={(key) => key} />
      </div>
    </>
  );
}

function Figure({ label, value, unit }: { label: string; value: string; unit: string }) {
  return (
    <div class="summary-cell">
      <dt>{label}</dt>
      <dd>
        {value}
        <span class="summary-unit">{unit}</span>
      </dd>
    </div>
  );
}

interface LinesProps {
  readonly title: string;
  readonly lines: readonly CostLine[];
  readonly total: CostLine;
  readonly name: (key: string) => ComponentChildren;
}

/** More lines are rarely read, and take time to render. */
const SHOWN = 50;

function Lines({ title, lines, total, name }: LinesProps) {
  const showsAll = useSignal(false);
  const shown = showsAll.value ? lines : lines.slice(0, SHOWN);
  return (
    <section class="cost-group">
      <h2>{title}</h2>
      <div class="cost-scroll">
        <table class="cost-table" aria-label={title}>
          <thead>
            <tr>
              <th scope="col">
                <span class="visually-hidden">Name</span>
              </th>
              <th scope="col">Per hour</th>
              <th scope="col">Month</th>
              <th scope="col">Disks</th>
              <th scope="col">Saved</th>
              <th scope="col">Ran</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((line) => (
              <tr key={line.key}>
                <th scope="row">
                  {name(line.key)}
                  <span class="share" aria-hidden="true">
                    <span style={{ width: `${shareOf(line, total)}%` }} />
                  </span>
                </th>
                <td>{line.usd_per_hour === 0 ? <span class="absent">—</span> : formatUsd(line.usd_per_hour)}</td>
                <td>{formatSum(line.usd_this_month)}</td>
                <td>{formatDisks(line)}</td>
                <td>
                  {line.usd_saved_this_month === 0 ? (
                    <span class="absent">—</span>
                  ) : (
                    formatSum(line.usd_saved_this_month)
                  )}
                </td>
                <td>{formatHours(line.running_hours_this_month)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length < lines.length && (
        <button
          type="button"
          class="text-button"
          onClick={() => {
            showsAll.value = true;
          }}
        >
          Show all {lines.length.toLocaleString("en-US")}
        </button>
      )}
    </section>
  );
}
