/** The panel of one worker beside the fleet: its details, explanation, actions and timeline. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { focusOn, isNavigatingRows, rowLinkId } from "../../app/keyboard";
import { showFleet, workerPageHref } from "../../app/router";
import { entries, type WorkerEntry } from "../../app/store";
import { Copyable } from "../../kit/copyable";
import { Glyph } from "../../kit/icons";
import { PausingSection } from "../idle/pausing";
import { WorkerSessions } from "../lablets/worker-sessions";
import { LabsSection } from "../labs/labs-section";
import { LicenseSection } from "../license/license-section";
import { AdoptionSection } from "./adoption";
import { CertificateSection } from "./certificate";
import { useFetchedWorker } from "./fetched";
import { LoadSection } from "./load";
import { State } from "./state";
import { Timeline } from "./timeline";
import { useExplanation } from "./why";
import { WorkerControls } from "./worker-controls";
import { WorkerFacts } from "./worker-facts";

export function WorkerPanel({ id }: { id: string }) {
  const panel = useRef<HTMLElement>(null);
  const entry = entries.value.get(id);

  useLayoutEffect(() => {
    const element = panel.current;
    // A user who navigates the rows with the keyboard stays in the list.
    if (!isNavigatingRows()) element?.focus({ preventScroll: true });
    return () => {
      if (element?.contains(document.activeElement) === true) focusOn(rowLinkId(id));
    };
  }, [id]);

  return (
    <aside ref={panel} class="panel" tabIndex={-1} aria-label={entry?.worker.value.name ?? "Worker"}>
      {entry === undefined ? <Missing id={id} /> : <Details entry={entry} />}
    </aside>
  );
}

function CloseButton() {
  return (
    <button type="button" class="icon-button" title="Close (Esc)" aria-label="Close" onClick={showFleet}>
      <Glyph name="close" />
    </button>
  );
}

function Missing({ id }: { id: string }) {
  const problem = useFetchedWorker(id);
  return (
    <>
      <header class="panel-head">
        <h2>{problem.value === null ? <span class="placeholder" /> : "Worker not found"}</h2>
        <CloseButton />
      </header>
      {problem.value !== null && <p class="panel-note">{problem.value}</p>}
    </>
  );
}

function Details({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  const explanation = useExplanation(worker).value;
  return (
    <>
      <header class="panel-head">
        <div class="panel-title">
          <h2>{worker.name}</h2>
          <Copyable text={worker.id} />
        </div>
        <a
          class="icon-button"
          href={workerPageHref(worker.id)}
          title="Charts and all details"
          aria-label="Open the page"
        >
          <Glyph name="expand" />
        </a>
        <CloseButton />
      </header>
      <div class="panel-body">
        <State entry={entry} explanation={explanation} />
        <AdoptionSection entry={entry} />
        <CertificateSection entry={entry} />
        <PausingSection entry={entry} explanation={explanation} />
        <LoadSection entry={entry} />
        <WorkerSessions worker={worker} />
        <LabsSection workerId={worker.id} />
        <LicenseSection entry={entry} />
        <WorkerFacts worker={worker} />
        <section class="panel-section" aria-label="Timeline">
          <h3>Timeline</h3>
          <Timeline worker={worker} />
        </section>
      </div>
      <WorkerControls entry={entry} />
    </>
  );
}
