/** The panel of one worker beside the fleet: its details, explanation, actions and timeline. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import * as api from "../../app/api";
import { focusOn, isNavigatingRows, rowLinkId } from "../../app/keyboard";
import { showFleet } from "../../app/router";
import { applyWorkers, desiredStatus, entries, isLoaded, templates, type WorkerEntry } from "../../app/store";
import type { Explanation, WorkerView } from "../../generated/api";
import { Copyable } from "../../kit/copyable";
import { formatUsd } from "../../kit/format";
import { Glyph } from "../../kit/icons";
import { Ago } from "../../kit/time";
import { CmlVersion } from "../fleet/worker-row";
import { PausingSection } from "../idle/pausing";
import { WorkerSessions } from "../lablets/worker-sessions";
import { LabsSection } from "../labs/labs-section";
import { LicenseSection } from "../license/license-section";
import { CertificateSection } from "./certificate";
import { cmlHealthText, cmlLicenseText, cmlSystemText } from "./cml-facts";
import { consolePage } from "./links";
import { LoadSection } from "./load";
import { statusInfo } from "./model";
import { DesiredHint, StatusBadge } from "./status-badge";
import { Timeline } from "./timeline";
import { useExplanation, Why } from "./why";
import { WorkerControls } from "./worker-controls";

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

/** A link may name a worker that is not in the fleet list: fetch it by its id. */
function Missing({ id }: { id: string }) {
  const problem = useSignal<string | null>(null);
  const hasFleet = isLoaded.value;
  useEffect(() => {
    if (!hasFleet) return;
    api.getWorker(id).then(
      (worker) => applyWorkers([worker]),
      (error: unknown) => {
        problem.value = error instanceof Error ? error.message : String(error);
      },
    );
  }, [id, hasFleet]);
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
        <CloseButton />
      </header>
      <div class="panel-body">
        <State entry={entry} explanation={explanation} />
        <CertificateSection entry={entry} />
        <PausingSection entry={entry} explanation={explanation} />
        <LoadSection entry={entry} />
        <WorkerSessions worker={worker} />
        <LabsSection workerId={worker.id} />
        <LicenseSection entry={entry} />
        <Facts worker={worker} />
        <section class="panel-section" aria-label="Timeline">
          <h3>Timeline</h3>
          <Timeline worker={worker} />
        </section>
      </div>
      <WorkerControls entry={entry} />
    </>
  );
}

function State({ entry, explanation }: { entry: WorkerEntry; explanation: Explanation | null }) {
  const worker = entry.worker.value;
  return (
    <section class="state" data-color={statusInfo(worker.status).color} aria-label="Why and what next">
      <span class="status-line">
        <StatusBadge status={worker.status} />
        <DesiredHint status={worker.status} desired={desiredStatus(entry)} />
      </span>
      <Why worker={worker} explanation={explanation} />
    </section>
  );
}

function Facts({ worker }: { worker: WorkerView }) {
  const template = templates.value.find((candidate) => candidate.name === worker.template_name);
  const tags = Object.entries(worker.tags);
  return (
    <dl class="facts">
      <Fact label="Instance">
        {worker.ec2_instance_id !== null && (
          <>
            <Copyable text={worker.ec2_instance_id} />
            <a class="open-outside" href={consolePage(worker) ?? ""} target="_blank" rel="noreferrer">
              AWS console <Glyph name="external" />
            </a>
          </>
        )}
      </Fact>
      <Fact label="Template">
        {worker.template_name}
        {worker.instance_type !== null && <span class="fact-aside">{worker.instance_type}</span>}
      </Fact>
      <Fact label="Price">
        {template !== undefined && (
          <>
            {formatUsd(template.usd_per_hour)} <span class="fact-aside">per hour of compute</span>
          </>
        )}
      </Fact>
      <Fact label="Region">{worker.aws_region}</Fact>
      <Fact label="CML">{(worker.cml_version !== null || worker.cml_ready) && <CmlVersion worker={worker} />}</Fact>
      <Fact label="CML health">{cmlHealthText(worker)}</Fact>
      <Fact label="CML license">{cmlLicenseText(worker)}</Fact>
      <Fact label="CML system">{cmlSystemText(worker)}</Fact>
      <Fact label="CML login">{worker.cml_username ?? "the fleet's"}</Fact>
      <Fact label="Labs running">{worker.labs_count !== null && String(worker.labs_count)}</Fact>
      <Fact label="Public address">{worker.public_ip !== null && <Copyable text={worker.public_ip} />}</Fact>
      <Fact label="Private address">{worker.private_ip !== null && <Copyable text={worker.private_ip} />}</Fact>
      <Fact label="AMI">
        {worker.ami_id !== null && (
          <>
            {worker.ami_name} <span class="fact-aside mono">{worker.ami_id}</span>
          </>
        )}
      </Fact>
      <Fact label="Created">
        <Ago at={worker.created_at} />
        <span class="fact-aside">by {worker.created_by}</span>
      </Fact>
      <Fact label="Updated">
        <Ago at={worker.updated_at} />
      </Fact>
      <Fact label="Tags">
        {tags.length > 0 &&
          tags.map(([key, value]) => (
            <span key={key} class="tag">
              {key}={value}
            </span>
          ))}
      </Fact>
    </dl>
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
