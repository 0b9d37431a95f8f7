/** The page of one worker. Its controls are in its head, where nothing that arrives live moves them. */

import { workerHref } from "../../app/router";
import { desiredStatus, entries, type WorkerEntry } from "../../app/store";
import type { WorkerView } from "../../generated/api";
import { Copyable, CopyButton } from "../../kit/copyable";
import { PausingSection } from "../idle/pausing";
import { WorkerSessions } from "../lablets/worker-sessions";
import { LabsSection } from "../labs/labs-section";
import { LicenseSection } from "../license/license-section";
import { AdoptionSection } from "./adoption";
import { CertificateSection } from "./certificate";
import { useFetchedWorker } from "./fetched";
import { LoadHistorySection } from "./load-history-section";
import { State } from "./state";
import { DesiredHint, StatusBadge } from "./status-badge";
import { Timeline } from "./timeline";
import { useExplanation } from "./why";
import { WorkerControls } from "./worker-controls";
import { WorkerFacts } from "./worker-facts";

export function WorkerPage({ id }: { id: string }) {
  const entry = entries.value.get(id);
  return (
    <div class="worker-page">
      <a class="back-link" href={workerHref(id)}>
        ← Fleet
      </a>
      {entry === undefined ? <Missing id={id} /> : <Details entry={entry} />}
    </div>
  );
}

function Missing({ id }: { id: string }) {
  const problem = useFetchedWorker(id);
  if (problem.value === null) {
    return (
      <div class="timeline-skeleton" aria-busy="true">
        <h1 class="visually-hidden">Loading the worker</h1>
        <span class="placeholder" />
        <span class="placeholder" />
      </div>
    );
  }
  return (
    <section class="empty" role="alert">
      <h1>Worker not found</h1>
      <p>{problem}</p>
    </section>
  );
}

function Details({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  const explanation = useExplanation(worker).value;
  return (
    <>
      <header class="session-head">
        <div class="session-title">
          <h1>{worker.name}</h1>
          <div class="session-lead">
            <StatusBadge status={worker.status} />
            <DesiredHint status={worker.status} desired={desiredStatus(entry)} />
            <Copyable text={worker.id} />
          </div>
        </div>
      </header>
      <WorkerControls entry={entry} />
      <LoadHistorySection worker={worker} />
      <div class="session-columns">
        <div>
          <h2 class="visually-hidden">What is on it</h2>
          <WorkerSessions worker={worker} />
          <LabsSection workerId={worker.id} isDrawn />
          <section class="panel-section" aria-label="Timeline">
            <h3>Timeline</h3>
            <Timeline worker={worker} />
          </section>
        </div>
        <div>
          <h2 class="visually-hidden">How it is</h2>
          <State entry={entry} explanation={explanation} />
          <AdoptionSection entry={entry} />
          <CertificateSection entry={entry} />
          <PausingSection entry={entry} explanation={explanation} />
          <LicenseSection entry={entry} />
          <WorkerFacts worker={worker} />
          <RawRecord worker={worker} />
        </div>
      </div>
    </>
  );
}

/** The record as the API shows it. */
function RawRecord({ worker }: { worker: WorkerView }) {
  const text = JSON.stringify(worker, null, 2);
  return (
    <details class="raw">
      <summary>Raw record</summary>
      <div class="raw-text">
        <CopyButton name="record" text={text} />
        <pre>{text}</pre>
      </div>
    </details>
  );
}
