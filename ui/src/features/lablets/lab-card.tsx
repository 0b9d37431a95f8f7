/** The lab of a session, live: its steps and its nodes. Its only control is for a lab that stands still. */

import { useSignal } from "@preact/signals";
import { useCallback, useRef } from "preact/hooks";
import * as api from "../../app/lablet-api";
import { showError } from "../../app/toasts";
import type { LabletSessionView } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatDuration } from "../../kit/format";
import { Age, Ticking } from "../../kit/time";
import { nodeColor, stateLabel } from "../labs/labs";
import { topologyOf } from "../topology/analyses";
import { TopologyPicture } from "../topology/topology-picture";
import { sessionInfo } from "./model";
import {
  bootStart,
  bootTime,
  countBooted,
  hasProgress,
  isStoppedOutside,
  type SeenNodes,
  type StepLine,
  seeNodes,
  stepsOf,
} from "./progress";
import { applySessions } from "./store";

export function LabCard({ session }: { session: LabletSessionView }) {
  if (!hasProgress(session)) return null;
  const count = Object.keys(session.nodes).length;
  return (
    <section class="card" aria-label="Lab">
      <h2>
        Lab{" "}
        {count > 0 && (
          <span class="count">
            {countBooted(session.nodes)} of {count} nodes booted
          </span>
        )}
      </h2>
      <Stuck session={session} />
      <LostClaim session={session} />
      {isStoppedOutside(session) && <Restart session={session} />}
      <ol class="lab-steps">
        {stepsOf(session).map((step) => (
          <StepItem key={step.id} step={step} />
        ))}
      </ol>
      <Picture session={session} />
      <Nodes session={session} />
    </section>
  );
}

function Stuck({ session: { cleanup } }: { session: LabletSessionView }) {
  if (cleanup.is_abandoned === true) {
    return (
      <p class="lab-stuck">It was abandoned: the lab may remain, and its worker keeps the room until it is gone.</p>
    );
  }
  if (cleanup.is_stuck !== true) return null;
  return (
    <p class="lab-stuck" role="status">
      CML refuses the removal again and again. LCM goes on trying, and the worker keeps the room meanwhile. An
      administrator may abandon the lab: the session then ends at once.
    </p>
  );
}

function LostClaim({ session: { lab, ended_at } }: { session: LabletSessionView }) {
  if (lab === null || lab.claim_lost_at === null || ended_at !== null) return null;
  return (
    <p class="lab-stuck" role="status">
      The worker does not hold the claim of this lab any more, and cannot hold it again yet: other sessions may get its
      room and ports. The lab goes on; LCM puts the claim back as soon as that is possible.
    </p>
  );
}

/** The request is answered at once; that the lab starts is seen by its step. */
function Restart({ session }: { session: LabletSessionView }) {
  const isRequested = useSignal(false);

  async function restart(): Promise<void> {
    isRequested.value = true;
    try {
      applySessions([await api.restartLab(session.id)]);
    } catch (error) {
      showError("The lab is not started", error);
      isRequested.value = false;
    }
  }

  return (
    <div class="lab-stuck lab-stopped" role="status">
      <p>The lab was stopped, and not by LCM. The session goes on, and nothing on its disks is lost.</p>
      <button
        type="button"
        class="button button-small"
        disabled={isRequested.value}
        aria-busy={isRequested.value}
        onClick={() => void restart()}
      >
        {isRequested.value ? "Start requested" : "Start the lab again"}
      </button>
    </div>
  );
}

function StepItem({ step }: { step: StepLine }) {
  const { label, status, color, tries, detail } = step;
  return (
    <li class="lab-step" data-step={step.id} data-status={status} data-color={color} data-moving={status === "running"}>
      <span class="dot" />
      <span class="lab-step-name">{label}</span>
      <span class="visually-hidden">{status}</span>
      <span class="lab-step-tries">{tries}</span>
      <span class="lab-step-time">
        <StepTime step={step} />
      </span>
      {detail !== "" && <p class="lab-step-detail">{detail}</p>}
    </li>
  );
}

function StepTime({ step: { status, startedAt, endedAt } }: { step: StepLine }) {
  if (startedAt === null || status === "pending") return null;
  if (endedAt === null) return <Age at={startedAt} />;
  return <>{formatDuration(Date.parse(endedAt) - Date.parse(startedAt))}</>;
}

/** The lab as its author drew it, with the nodes as they boot. */
function Picture({ session: { definition_id, nodes } }: { session: LabletSessionView }) {
  const topology = topologyOf(definition_id).value;
  if (topology === null || Object.keys(nodes).length === 0) return null;
  return <TopologyPicture topology={topology} stateOf={(label) => nodes[label] ?? null} />;
}

function Nodes({ session }: { session: LabletSessionView }) {
  const seen = useRef<SeenNodes | null>(null);
  const nodes = seeNodes(seen.current, session.nodes, now.peek());
  seen.current = nodes;
  const labels = Object.keys(session.nodes);
  if (labels.length === 0) return null;
  const isTimed = sessionInfo(session.status).phase === "starting" || nodes.bootedAt.size > 0;
  const start = isTimed ? bootStart(session) : null;
  return (
    <ul class="boot-nodes" aria-label="Nodes">
      {labels.map((label) => (
        <NodeItem key={label} seen={nodes} label={label} start={start} />
      ))}
    </ul>
  );
}

interface NodeItemProps {
  readonly seen: SeenNodes;
  readonly label: string;
  readonly start: string | null;
}

function NodeItem({ seen, label, start }: NodeItemProps) {
  const state = seen.states[label] ?? null;
  const color = nodeColor(state);
  const time = useCallback((moment: number) => bootTime(seen, label, start, moment), [seen, label, start]);
  return (
    <li
      class="boot-node"
      data-node={label}
      data-state={state ?? ""}
      data-color={color}
      data-moving={color === "orange"}
    >
      <span class="dot" />
      <span class="node-label" title={label}>
        {label}
      </span>
      <span class="node-state">{stateLabel(state)}</span>
      <span class="boot-time">
        <Ticking text={time} />
      </span>
    </li>
  );
}
