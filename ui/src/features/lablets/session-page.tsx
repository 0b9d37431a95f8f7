/** The page of one lablet session. Its controls are in its head, where nothing that arrives live moves them. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { type Answer, useAnswer } from "../../app/answer";
import { messageOf } from "../../app/api";
import { openSessionsDialog } from "../../app/commands";
import * as api from "../../app/lablet-api";
import { ownerName } from "../../app/people";
import { classSheetHref, sessionHref, sessionsHref } from "../../app/router";
import { denialFor } from "../../app/session";
import { entries, snapshotCount } from "../../app/store";
import type { Capacity, LabletSessionView, SessionHistoryEntry } from "../../generated/api";
import { now } from "../../kit/clock";
import { Copyable } from "../../kit/copyable";
import { formatDuration, formatExact, formatMoment } from "../../kit/format";
import { Age, Ago } from "../../kit/time";
import { AccessCard } from "./access-card";
import { EvidenceCard } from "./evidence-card";
import { LabCard } from "./lab-card";
import {
  canAbandon,
  canEnd,
  classOf,
  extendDisabledReason,
  isEnding,
  queryOf,
  type StripStep,
  sessionInfo,
  shortId,
  stripOf,
} from "./model";
import { Countdown, SessionBadge } from "./session-badge";
import { WorkerName } from "./session-row";
import { LOCAL_ZONE } from "./slot";
import { SlotCard } from "./slot-card";
import { applySessions, filter, minute, type SessionEntry, sessions } from "./store";
import { WhyCard } from "./why-card";

export function SessionPage({ id }: { id: string }) {
  const entry = sessions.value.get(id);
  const problem = useFetched(id);
  return (
    <>
      <a class="back-link" href={sessionsHref(queryOf(filter.value))}>
        ← Sessions
      </a>
      {entry === undefined ? <Missing problem={problem.value} /> : <Details key={id} entry={entry} />}
    </>
  );
}

/** Fetch the session when its page opens and after every snapshot: events may have been missed. */
function useFetched(id: string) {
  const problem = useSignal<string | null>(null);
  const snapshots = snapshotCount.value;
  useEffect(() => {
    let isCurrent = true;
    api.getSession(id).then(
      (session) => applySessions([session]),
      (error: unknown) => {
        if (isCurrent) problem.value = messageOf(error);
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [id, snapshots]);
  return problem;
}

function Missing({ problem }: { problem: string | null }) {
  if (problem === null) {
    return (
      <div class="timeline-skeleton" aria-busy="true">
        <h1 class="visually-hidden">Loading the session</h1>
        <span class="placeholder" />
        <span class="placeholder" />
        <span class="placeholder" />
      </div>
    );
  }
  return (
    <section class="empty" role="alert">
      <h1>Session not found</h1>
      <p>{problem}</p>
    </section>
  );
}

function Details({ entry }: { entry: SessionEntry }) {
  const session = entry.session.value;
  const history = useAnswer(`${session.id} ${session.version}`, () => api.getHistory(session.id));
  return (
    <>
      <header class="session-head">
        <div class="session-title">
          <h1>
            {session.definition_name} <span class="name-version">{session.definition_version}</span>
          </h1>
          <p class="session-lead">
            <SessionBadge status={session.status} />
            {isEnding(session) && session.status !== "stopping" && <span class="desired">→ ends</span>}
            <span>
              for <strong title={session.owner_id}>{ownerName(session.owner_id)}</strong>
            </span>
            <span class="session-left">
              <Countdown session={session} />
            </span>
          </p>
        </div>
        <Controls session={session} />
      </header>
      <Strip session={session} history={history.value.value ?? []} />
      <SlotCard session={session} />
      <div class="session-columns">
        <div>
          <AccessCard session={session} />
          <WhyCard session={session} />
          <LabCard session={session} />
          <HistoryCard history={history} />
        </div>
        <div>
          <NeedsCard session={session} />
          <FactsCard session={session} />
          <EvidenceCard session={session} />
        </div>
      </div>
    </>
  );
}

function Controls({ session }: { session: LabletSessionView }) {
  const extendReason = extendDisabledReason(session);
  return (
    <div class="session-controls" role="group" aria-label="Controls">
      <button
        type="button"
        class="button"
        disabled={extendReason !== null}
        title={extendReason ?? ""}
        onClick={() => openSessionsDialog("extend-sessions", [session.id])}
      >
        Extend…
      </button>
      <LastControl session={session} />
    </div>
  );
}

/** End, or what is left when the session ends or has failed. Keys keep a press on one from acting as another. */
function LastControl({ session }: { session: LabletSessionView }) {
  const { id, status } = session;
  if (status === "failed") {
    return (
      <button key="retry" type="button" class="button" onClick={() => openSessionsDialog("retry-session", [id])}>
        Retry…
      </button>
    );
  }
  if (canAbandon(session) && denialFor("abandon") === null) {
    return (
      <button
        key="abandon"
        type="button"
        class="button button-end"
        title="End the session although its lab may remain"
        onClick={() => openSessionsDialog("abandon-session", [id])}
      >
        Abandon…
      </button>
    );
  }
  return (
    <button
      key="end"
      type="button"
      class="button button-end"
      disabled={!canEnd(session)}
      title={canEnd(session) ? "" : "It has ended or is ending."}
      onClick={() => openSessionsDialog("end-sessions", [id])}
    >
      End…
    </button>
  );
}

interface StripProps {
  readonly session: LabletSessionView;
  readonly history: readonly SessionHistoryEntry[];
}

function Strip({ session, history }: StripProps) {
  const steps = stripOf(session, history);
  return (
    <ol class="strip" aria-label="States" data-color={sessionInfo(session.status).color}>
      {steps.map((step) => (
        <StripItem key={step.id} step={step} />
      ))}
    </ol>
  );
}

function StripItem({ step: { id, label, at, is } }: { step: StripStep }) {
  return (
    <li class="strip-step" data-step={id} data-is={is} aria-current={is === "present" ? "step" : undefined}>
      <span class="strip-dot" aria-hidden="true" />
      <span class="strip-label">{label}</span>
      <span class="strip-time">
        {at === null ? (
          <span aria-hidden="true">{is === "skipped" ? "—" : ""}</span>
        ) : (
          <time dateTime={at} title={formatExact(at)}>
            {formatMoment(at, minute.value)}
          </time>
        )}
      </span>
    </li>
  );
}

const DIMENSIONS: readonly { readonly id: keyof Capacity; readonly label: string; readonly unit: string }[] = [
  { id: "cpu", label: "CPU", unit: "" },
  { id: "memory_gb", label: "Memory", unit: " GB" },
  { id: "storage_gb", label: "Disk", unit: " GB" },
  { id: "nodes", label: "Nodes", unit: "" },
];

/** What it needs beside what its worker has and what others take there. */
function NeedsCard({ session }: { session: LabletSessionView }) {
  const workerId = session.worker_id ?? session.nominated?.worker_id ?? null;
  const worker = workerId === null ? undefined : entries.value.get(workerId)?.worker.value;
  const declared = worker?.declared_capacity ?? null;
  const isPlaced = session.worker_id !== null;
  const { needs } = session.demand;
  return (
    <section class="card" aria-label="Needs">
      <h2>
        Needs{" "}
        {worker !== undefined && (
          <>
            on <WorkerName id={worker.id} />
          </>
        )}
      </h2>
      <table class="needs">
        <thead>
          <tr>
            <th scope="col">
              <span class="visually-hidden">Kind</span>
            </th>
            <th scope="col">Needs</th>
            <th scope="col">{worker === undefined ? "Worker" : "Taken of the worker"}</th>
          </tr>
        </thead>
        <tbody>
          {DIMENSIONS.map(({ id, label, unit }) => (
            <tr key={id}>
              <th scope="row">{label}</th>
              <td>
                {round(needs[id])}
                {unit}
              </td>
              <td>
                {worker === undefined || declared === null ? (
                  <span class="absent">—</span>
                ) : (
                  <Share
                    need={needs[id]}
                    taken={worker.allocated_capacity[id] - (isPlaced ? needs[id] : 0)}
                    declared={declared[id]}
                    unit={unit}
                  />
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <OtherNeeds session={session} />
    </section>
  );
}

interface ShareProps {
  readonly need: number;
  /** By other sessions. */
  readonly taken: number;
  readonly declared: number;
  readonly unit: string;
}

function Share({ need, taken, declared, unit }: ShareProps) {
  const part = (amount: number) => `${Math.min(100, Math.max(0, (100 * amount) / (declared || 1)))}%`;
  return (
    <span class="needs-share">
      <span>
        {round(Math.max(0, taken) + need)} of {round(declared)}
        {unit}
      </span>
      <span class="needs-bar" aria-hidden="true">
        <span class="needs-others" style={{ width: part(taken) }} />
        <span class="needs-own" style={{ width: part(need) }} />
      </span>
    </span>
  );
}

function round(amount: number): string {
  return (Math.round(amount * 10) / 10).toLocaleString("en-US");
}

function OtherNeeds({ session: { demand } }: { session: LabletSessionView }) {
  const versions = [demand.cml_version_min, demand.cml_version_max].filter((bound) => bound !== null);
  const parts = [
    demand.ports.length > 0 ? `${demand.ports.length} ports` : null,
    demand.license_affinity.length > 0 ? `license ${demand.license_affinity.join(" or ")}` : null,
    versions.length > 0 ? `CML ${versions.join(" to ")}` : null,
    demand.needs_nested_virtualization ? "nested virtualization" : null,
    demand.region === null ? null : `region ${demand.region}`,
    demand.node_definitions.length > 0 ? demand.node_definitions.join(", ") : null,
  ].filter((part) => part !== null);
  if (parts.length === 0) return null;
  return <p class="needs-other">Also: {parts.join(" · ")}</p>;
}

function HistoryCard({ history }: { history: Answer<readonly SessionHistoryEntry[]> }) {
  const items = history.value.value;
  return (
    <section class="card" aria-label="History">
      <h2>History</h2>
      {items === null ? (
        <p class="field-note">{history.problem.value ?? "Loading…"}</p>
      ) : (
        <ol class="timeline" data-testid="history">
          {items.map((item, index) => <HistoryStep key={index} item={item} next={items[index + 1]} />).reverse()}
        </ol>
      )}
    </section>
  );
}

interface HistoryStepProps {
  readonly item: SessionHistoryEntry;
  readonly next: SessionHistoryEntry | undefined;
}

function HistoryStep({ item, next }: HistoryStepProps) {
  const { label, color, moving, phase } = sessionInfo(item.to);
  return (
    <li class="step" data-to={item.to} data-color={color} data-moving={next === undefined && moving}>
      <span class="dot" />
      <div class="step-head">
        <span class="step-status">{label}</span>
        <span class="step-span">
          {next !== undefined && formatDuration(Date.parse(next.at) - Date.parse(item.at))}
          {next === undefined && phase !== "ended" && (
            <>
              for <Age at={item.at} />
            </>
          )}
        </span>
      </div>
      {item.reason !== "" && <p class="step-reason">{item.reason}</p>}
      <p class="step-when">
        <Ago at={item.at} />
        <span>{formatMoment(item.at, now.peek())}</span>
        <span>{ownerName(item.by)}</span>
      </p>
    </li>
  );
}

function FactsCard({ session }: { session: LabletSessionView }) {
  const placed = session.worker_id ?? session.nominated?.worker_id ?? null;
  return (
    <section class="card" aria-label="Details">
      <h2>Details</h2>
      <dl class="facts facts-plain">
        <Fact label="Session">
          <Copyable text={session.id} />
        </Fact>
        <Fact label="Worker">
          {placed !== null && (
            <>
              <WorkerName id={placed} />
              {session.worker_id === null && <span class="fact-aside">counts on it</span>}
            </>
          )}
        </Fact>
        <Fact label="Class">
          {session.batch !== null && (
            <a class="link-text" href={sessionsHref(`class=${encodeURIComponent(session.batch.id)}&show=all`)}>
              {classOf(session)}
            </a>
          )}
        </Fact>
        {session.batch !== null && (
          <Fact label="Access of all">
            <a class="link-text" href={classSheetHref(session.batch.id)}>
              Access sheet
            </a>
          </Fact>
        )}
        <Fact label="Reservation">{session.reservation_id}</Fact>
        <Fact label="In place of">
          {session.retry_of !== null && (
            <a class="link-text mono" href={sessionHref(session.retry_of)}>
              {shortId(session.retry_of)}
            </a>
          )}
        </Fact>
        <Fact label="Attempts">{session.place_attempts > 0 && `${session.place_attempts} failed placements`}</Fact>
        <Fact label="End requested">
          {session.end_asked_at !== null && (
            <>
              <Ago at={session.end_asked_at} />
              <span class="fact-aside">by {session.end_asked_by}</span>
            </>
          )}
        </Fact>
        <Fact label="Created">
          <Ago at={session.created_at} />
        </Fact>
        <Fact label="Your zone">{LOCAL_ZONE}</Fact>
      </dl>
    </section>
  );
}

function Fact({ label, children }: { label: string; children: ComponentChildren }) {
  const isAbsent = children === null || children === false;
  return (
    <div class="fact">
      <dt>{label}</dt>
      <dd>{isAbsent ? <span class="absent">—</span> : children}</dd>
    </div>
  );
}
