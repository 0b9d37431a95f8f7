import { formatUsd, formatUsdPerMonth } from "../format";
import { GROUPS } from "../model";
import { costPerHour, isLoaded } from "../store";
import { countsByGroup } from "../view";

/** How the fleet is doing, in one line. */
export function Summary() {
  const counts = countsByGroup.value;
  return (
    <section class="summary" aria-label="Summary" aria-busy={!isLoaded.value}>
      <dl class="summary-cells">
        {GROUPS.map((group) => {
          const count = counts.get(group.id) ?? 0;
          return (
            <div key={group.id} class="summary-cell" data-tone={group.tone} data-empty={count === 0}>
              <dt>
                <span class="dot" />
                {group.label}
              </dt>
              <dd>{isLoaded.value ? count.toLocaleString("en-US") : <span class="bone bone-number" />}</dd>
            </div>
          );
        })}
        <Cost />
      </dl>
      <Proportions />
    </section>
  );
}

function Cost() {
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
          <span class="bone bone-number" />
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
        <span key={group.id} data-tone={group.tone} style={{ flexGrow: counts.get(group.id) ?? 0 }} />
      ))}
    </div>
  );
}
