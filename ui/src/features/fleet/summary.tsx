import { costPerHour, isLoaded } from "../../app/store";
import { formatSum, formatUsd, formatUsdPerMonth } from "../../kit/format";
import { costReport } from "../cost/cost";
import { useCost } from "../cost/cost-page";
import { GROUPS } from "../worker/model";
import { countsByGroup } from "./view";

/** The state of the fleet in one line. */
export function Summary() {
  const counts = countsByGroup.value;
  return (
    <section class="summary" aria-label="Summary" aria-busy={!isLoaded.value}>
      <dl class="summary-cells">
        {GROUPS.map((group) => {
          const count = counts.get(group.id) ?? 0;
          return (
            <div key={group.id} class="summary-cell" data-color={group.color} data-empty={count === 0}>
              <dt>
                <span class="dot" />
                {group.label}
              </dt>
              <dd>
                {isLoaded.value ? count.toLocaleString("en-US") : <span class="placeholder placeholder-number" />}
              </dd>
            </div>
          );
        })}
        <RunningCost />
        <MonthsCost />
      </dl>
      <Proportions />
    </section>
  );
}

function RunningCost() {
  const cost = costPerHour.value;
  return (
    <div class="summary-cell summary-cost" title="Compute that EC2 bills now, at the templates' prices">
      <dt>Running cost</dt>
      <dd>
        {isLoaded.value ? (
          <>
            {formatUsd(cost)}
            <span class="summary-unit">per hour</span>
            <span class="summary-month">≈ {formatUsdPerMonth(cost)} a month</span>
          </>
        ) : (
          <span class="placeholder placeholder-number" />
        )}
      </dd>
    </div>
  );
}

function MonthsCost() {
  useCost();
  const total = costReport.value?.total;
  return (
    <div class="summary-cell summary-spent" title="Cost of the workers this month, and what pausing saved">
      <dt>
        <a class="summary-link" href="#/cost">
          This month
        </a>
      </dt>
      <dd>
        {total === undefined ? (
          <span class="placeholder placeholder-number" />
        ) : (
          <>
            {formatSum(total.usd_this_month)}
            <span class="summary-unit">so far</span>
            <span class="summary-saved">
              {formatSum(total.usd_saved_this_month)} saved<span class="summary-how"> by pausing</span>
            </span>
          </>
        )}
      </dd>
    </div>
  );
}

function Proportions() {
  const counts = countsByGroup.value;
  return (
    <div class="proportions" aria-hidden="true">
      {GROUPS.map((group) => (
        <span key={group.id} data-color={group.color} style={{ flexGrow: counts.get(group.id) ?? 0 }} />
      ))}
    </div>
  );
}
