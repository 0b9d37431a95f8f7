/** The page of the scaling audit log: every decision about the size of the fleet, with its reason. */

import { useSignal } from "@preact/signals";
import * as api from "../../app/api";
import { LogList } from "../../app/log-list";
import { workerHref } from "../../app/router";
import { entries } from "../../app/store";
import type { AuditEntry, AuditEvent } from "../../generated/api";
import { AUDIT_EVENTS } from "../../generated/rules";
import { now } from "../../kit/clock";
import { formatMoment } from "../../kit/format";
import { Ago } from "../../kit/time";
import { auditInfo } from "./scaling";

export function Scaling() {
  const event = useSignal<AuditEvent | null>(null);
  return (
    <>
      <div class="page-head">
        <h1>Scaling</h1>
        <EventSelect value={event.value} onChange={(chosen) => (event.value = chosen)} />
      </div>
      <p class="page-lead">Every decision about the size of the fleet, with its reason.</p>
      <LogList
        key={event.value}
        label="Scaling decisions"
        failure="Could not load older decisions"
        load={(before) => api.listAudit(event.value, before)}
        empty={<NoDecisions isFiltered={event.value !== null} />}
        render={(entry) => <Decision key={entry.id} entry={entry} />}
      />
    </>
  );
}

function EventSelect({ value, onChange }: { value: AuditEvent | null; onChange: (event: AuditEvent | null) => void }) {
  return (
    <select
      class="select select-small"
      aria-label="Show decisions"
      value={value ?? ""}
      onChange={({ currentTarget }) =>
        onChange(currentTarget.value === "" ? null : (currentTarget.value as AuditEvent))
      }
    >
      <option value="">All decisions</option>
      {AUDIT_EVENTS.map((event) => (
        <option key={event} value={event}>
          {auditInfo(event).label}
        </option>
      ))}
    </select>
  );
}

function Decision({ entry }: { entry: AuditEntry }) {
  const { label, color } = auditInfo(entry.event);
  return (
    <li class="decision" data-event={entry.event} data-color={color}>
      <span class="decision-event">
        <span class="dot" />
        {label}
      </span>
      <span class="decision-reason">{entry.reason}</span>
      <span class="decision-about">
        {entry.worker_id === null ? (
          [entry.template_name, entry.aws_region].filter((part) => part !== null).join(" · ")
        ) : (
          <WorkerLink id={entry.worker_id} />
        )}
      </span>
      <span class="decision-when" title={formatMoment(entry.at, now.peek())}>
        <Ago at={entry.at} />
        <span>{entry.by}</span>
      </span>
    </li>
  );
}

/** By its name if the page has it; a worker that is no longer listed is shown by its id. */
export function WorkerLink({ id }: { id: string }) {
  const name = entries.value.get(id)?.worker.value.name;
  return (
    <a class={name === undefined ? "link-text mono" : "link-text"} href={workerHref(id)} title={id}>
      {name ?? id}
    </a>
  );
}

function NoDecisions({ isFiltered }: { isFiltered: boolean }) {
  return (
    <section class="empty empty-small">
      <h2>{isFiltered ? "No matching decisions" : "No decisions yet"}</h2>
      {!isFiltered && <p>Scale-up requests and drains of idle workers are recorded here.</p>}
    </section>
  );
}
