/** The page of LCM itself: who leads, which processes run, what they miss and what they found in EC2. */

import type { ComponentChildren } from "preact";
import { usePolledAnswer } from "../../app/answer";
import * as api from "../../app/api";
import { workerHref } from "../../app/router";
import { fleetChanges } from "../../app/store";
import type { FleetFinds, LeaderView, MonitorState, ProcessView, SystemProblem, SystemView } from "../../generated/api";
import type { Color } from "../../generated/rules";
import { Glyph } from "../../kit/icons";
import { Loading } from "../../kit/loading";
import { Age, Ago } from "../../kit/time";
import { byKind, lagText, monitorColor, processColor, scanText, workText } from "./system";

const INTERVAL = { everyMs: 10_000, afterChangeMs: 2_000 };

export function SystemPage() {
  const { value, problem } = usePolledAnswer("system", api.getSystem, INTERVAL, fleetChanges);
  const system = value.value;
  return (
    <>
      <div class="page-head">
        <h1>System</h1>
      </div>
      <p class="page-lead">LCM's own processes: who leads, what waits, what is missing, and what was found in EC2.</p>
      {problem.value !== null && (
        <p class="panel-note" role="status">
          The state of the system could not be fetched: {problem.value}
        </p>
      )}
      {system === null ? problem.value === null && <Loading /> : <System system={system} />}
    </>
  );
}

function System({ system }: { system: SystemView }) {
  return (
    <>
      <Problems problems={system.problems} />
      <Part title="Leaders">
        {system.leaders.map((leader) => (
          <Leader key={leader.service} leader={leader} />
        ))}
      </Part>
      <Part title="Processes" count={system.processes.length}>
        {system.processes.map((view) => (
          <Process key={`${view.report.service} ${view.report.instance_id}`} view={view} />
        ))}
      </Part>
      <Monitors monitors={system.monitors} />
      {system.finds !== null && <Finds finds={system.finds} />}
      {system.adopted.length > 0 && (
        <Part title="Workers found in EC2" count={system.adopted.length}>
          {system.adopted.map((worker) => (
            <Line
              key={worker.worker_id}
              color={worker.is_trusted ? "grey" : "orange"}
              name={worker.is_trusted ? "Adopted" : "Not adopted"}
            >
              <a class="link-text" href={workerHref(worker.worker_id)}>
                {worker.name}
              </a>
            </Line>
          ))}
        </Part>
      )}
    </>
  );
}

function Problems({ problems }: { problems: readonly SystemProblem[] }) {
  if (problems.length === 0) {
    return (
      <p class="system-fine" role="status">
        <Glyph name="check" /> Everything runs.
      </p>
    );
  }
  return (
    <section class="notice" data-color="orange" aria-label="Problems">
      <h2>
        <Glyph name="alert" />
        {problems.length === 1 ? "1 problem" : `${problems.length} problems`}
      </h2>
      <ul>
        {problems.map(({ code, text }) => (
          <li key={text} data-code={code}>
            {text}
          </li>
        ))}
      </ul>
    </section>
  );
}

interface PartProps {
  readonly title: string;
  readonly count?: number;
  readonly children: ComponentChildren;
}

function Part({ title, count, children }: PartProps) {
  return (
    <section class="system-part" aria-label={title}>
      <h2>
        {title} {count !== undefined && <span class="count">{count}</span>}
      </h2>
      <ul class="audit">{children}</ul>
    </section>
  );
}

interface LineProps {
  readonly color: Color;
  readonly name: ComponentChildren;
  readonly about?: ComponentChildren;
  readonly when?: ComponentChildren;
  readonly children: ComponentChildren;
}

function Line({ color, name, about, when, children }: LineProps) {
  return (
    <li class="decision" data-color={color}>
      <span class="decision-event">
        <span class="dot" />
        {name}
      </span>
      <span class="decision-reason">{children}</span>
      <span class="decision-about">{about}</span>
      <span class="decision-when">{when}</span>
    </li>
  );
}

function Leader({ leader }: { leader: LeaderView }) {
  return (
    <Line
      color={leader.is_reporting ? "green" : "red"}
      name={leader.service}
      about={leader.epoch > 0 && `epoch ${leader.epoch}`}
      when={
        leader.since !== null && (
          <>
            <Age at={leader.since} />
            <span>in the lead</span>
          </>
        )
      }
    >
      {leader.instance_id ?? "none has led yet"}
    </Line>
  );
}

function Process({ view }: { view: ProcessView }) {
  const { report } = view;
  return (
    <Line
      color={processColor(view)}
      name={report.service}
      about={
        <>
          {report.version} · up <Age at={report.started_at} />
          <br />
          {lagText(report.loop_lag_seconds)}
        </>
      }
      when={
        <>
          <Ago at={view.reported_at} />
          <span>{view.is_silent ? "silent" : "reports"}</span>
        </>
      }
    >
      {report.instance_id}
      {report.controller !== null && <div>{workText(report.controller)}</div>}
      {report.frozen.map((reason) => (
        <div key={reason}>{reason}</div>
      ))}
    </Line>
  );
}

function Monitors({ monitors }: { monitors: Readonly<Partial<Record<MonitorState, number>>> }) {
  const states = Object.entries(monitors) as [MonitorState, number][];
  if (states.length === 0) return null;
  return (
    <section class="system-part" aria-label="WebSockets">
      <h2>WebSockets of running workers</h2>
      <p class="system-monitors">
        {states.map(([state, count]) => (
          <span key={state} class="system-monitor" data-color={monitorColor(state)}>
            <span class="dot" />
            {count} {state}
          </span>
        ))}
      </p>
    </section>
  );
}

function Finds({ finds }: { finds: FleetFinds }) {
  return (
    <>
      {finds.scans.length > 0 && (
        <Part title="Discovery">
          {finds.scans.map((scan) => (
            <Line
              key={scan.region}
              color={scan.error === "" ? "green" : "red"}
              name={scan.region}
              when={<Ago at={scan.at} />}
            >
              {scanText(scan)}
              {finds.dry_run_reasons[scan.region] !== undefined && (
                <div>Orphans are only reported: {finds.dry_run_reasons[scan.region]}</div>
              )}
            </Line>
          ))}
        </Part>
      )}
      {finds.orphan_count > 0 && (
        <Part title="Instances without a worker" count={finds.orphan_count}>
          {byKind(finds.orphans).map((orphan) => (
            <Line
              key={orphan.instance_id}
              color="orange"
              name={<span class="mono">{orphan.instance_id}</span>}
              about={`${orphan.region} · ${orphan.state}`}
            >
              {orphan.detail}
            </Line>
          ))}
        </Part>
      )}
    </>
  );
}
