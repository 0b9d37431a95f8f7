/** The page of the scaling audit log: every decision about the size of the fleet, with its reason. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import * as api from "../../app/api";
import { startPolling } from "../../app/polling";
import { workerHref } from "../../app/router";
import { entries } from "../../app/store";
import { showError } from "../../app/toasts";
import type { AuditEntry, AuditEvent, AuditPage } from "../../generated/api";
import { AUDIT_EVENTS } from "../../generated/rules";
import { now } from "../../kit/clock";
import { formatMoment } from "../../kit/format";
import { Spinner } from "../../kit/icons";
import { Ago } from "../../kit/time";
import { FleetLicense } from "../license/fleet-license-setting";
import { auditInfo, withNewest, withOlder } from "./scaling";

const INTERVAL = { everyMs: 30_000, afterChangeMs: 1_000 };

export function Scaling() {
  const event = useSignal<AuditEvent | null>(null);
  return (
    <>
      <div class="page-head">
        <h1>Scaling</h1>
        <EventSelect value={event.value} onChange={(chosen) => (event.value = chosen)} />
      </div>
      <p class="page-lead">Every decision about the size of the fleet, with its reason.</p>
      <FleetLicense />
      <AuditLog key={event.value} event={event.value} />
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

function AuditLog({ event }: { event: AuditEvent | null }) {
  const audit = useSignal<AuditPage | null>(null);
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);

  useEffect(() => {
    let isCurrent = true;
    const stop = startPolling(() => {
      api.listAudit(event).then(
        (newest) => {
          if (!isCurrent) return;
          audit.value = withNewest(audit.peek(), newest);
          problem.value = null;
        },
        (error: unknown) => {
          if (isCurrent) problem.value = error instanceof Error ? error.message : String(error);
        },
      );
    }, INTERVAL);
    return () => {
      isCurrent = false;
      stop();
    };
  }, [event]);

  async function loadOlder(shown: AuditPage): Promise<void> {
    isBusy.value = true;
    try {
      const older = await api.listAudit(event, shown.next);
      audit.value = withOlder(audit.peek() ?? shown, older);
    } catch (error) {
      showError("Could not load older decisions", error);
    } finally {
      isBusy.value = false;
    }
  }

  const known = audit.value;
  if (known === null) return problem.value === null ? <AuditSkeleton /> : <p class="panel-note">{problem.value}</p>;
  if (known.items.length === 0) return <NoDecisions isFiltered={event !== null} />;
  return (
    <>
      <ol class="audit" aria-label="Scaling decisions" data-testid="audit">
        {known.items.map((entry) => (
          <Decision key={entry.id} entry={entry} />
        ))}
      </ol>
      {known.next !== null && (
        <button type="button" class="button audit-more" aria-busy={isBusy.value} onClick={() => void loadOlder(known)}>
          {isBusy.value && <Spinner />}
          Show older
        </button>
      )}
    </>
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

function AuditSkeleton() {
  return (
    <div class="timeline-skeleton" aria-busy="true">
      <span class="placeholder" />
      <span class="placeholder" />
      <span class="placeholder" />
    </div>
  );
}
