/** The page of the security audit log, for admins. */

import { useSignal } from "@preact/signals";
import * as api from "../../app/api";
import { LogList } from "../../app/log-list";
import type { SecurityEntry } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatMoment } from "../../kit/format";
import { Ago } from "../../kit/time";
import { actorOf, changesOf } from "./audit";

const ALL: api.AuditFilter = { outcome: null, target: "", principal: "" };

export function AuditPage() {
  const filter = useSignal(ALL);
  const chosen = filter.value;
  return (
    <>
      <div class="page-head">
        <h1>Audit</h1>
        <a class="button" href={api.auditHref(chosen, { format: "csv" })} download>
          Export
        </a>
      </div>
      <p class="page-lead">Every change that people made, and every credential that was refused.</p>
      <Filter value={chosen} onChange={(changed) => (filter.value = changed)} />
      <LogList
        key={JSON.stringify(chosen)}
        label="Audit log"
        failure="Could not load older entries"
        load={(before) => api.listSecurityAudit(chosen, before)}
        empty={<NoEntries isFiltered={chosen !== ALL} />}
        render={(entry) => <Entry key={entry.id} entry={entry} />}
      />
    </>
  );
}

function Filter({ value, onChange }: { value: api.AuditFilter; onChange: (filter: api.AuditFilter) => void }) {
  return (
    <div class="audit-filter">
      <select
        class="select select-small"
        aria-label="Show outcomes"
        value={value.outcome ?? ""}
        onChange={({ currentTarget }) =>
          onChange({
            ...value,
            outcome: currentTarget.value === "" ? null : (currentTarget.value as "done" | "refused"),
          })
        }
      >
        <option value="">All outcomes</option>
        <option value="done">Done</option>
        <option value="refused">Refused</option>
      </select>
      <input
        class="input"
        type="search"
        placeholder="Principal"
        aria-label="Id or name of a principal"
        value={value.principal}
        onChange={({ currentTarget }) => onChange({ ...value, principal: currentTarget.value.trim() })}
      />
      <input
        class="input"
        type="search"
        placeholder="Target"
        aria-label="Part of a target"
        value={value.target}
        onChange={({ currentTarget }) => onChange({ ...value, target: currentTarget.value.trim() })}
      />
    </div>
  );
}

function Entry({ entry }: { entry: SecurityEntry }) {
  const isRefused = entry.outcome === "refused";
  return (
    <li class="decision" data-outcome={entry.outcome} data-color={isRefused ? "red" : "grey"}>
      <span class="decision-event">
        <span class="dot" />
        {entry.action}
      </span>
      <span class="decision-reason">
        {entry.target}
        {isRefused ? ` · ${entry.reason}` : <Changes changes={changesOf(entry)} />}
      </span>
      <span class="decision-about">
        {actorOf(entry)} · {entry.address}
      </span>
      <span class="decision-when" title={formatMoment(entry.at, now.peek())}>
        <Ago at={entry.at} />
        <span>{entry.outcome}</span>
      </span>
    </li>
  );
}

/** What is created has many fields: they are shown on request. */
const FEW = 3;

function Changes({ changes }: { changes: readonly string[] }) {
  const list = changes.map((change) => <div key={change}>{change}</div>);
  if (changes.length <= FEW) return <>{list}</>;
  return (
    <details>
      <summary>{changes.length} fields</summary>
      {list}
    </details>
  );
}

function NoEntries({ isFiltered }: { isFiltered: boolean }) {
  return (
    <section class="empty empty-small">
      <h2>{isFiltered ? "No matching entries" : "No entries yet"}</h2>
    </section>
  );
}
