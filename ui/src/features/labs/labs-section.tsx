/** The labs of the open worker and their nodes, live. */

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import * as api from "../../app/api";
import { labsHref } from "../../app/router";
import { entries } from "../../app/store";
import { formatCount } from "../../kit/format";
import { sessions } from "../lablets/store";
import { topologyOf } from "../topology/analyses";
import { TopologyPicture } from "../topology/topology-picture";
import {
  type Lab,
  type LabNode,
  labColor,
  labs,
  nodeColor,
  placesOf,
  sortedLabs,
  sortedNodes,
  stateLabel,
  subscribeToLabs,
} from "./labs";

interface LabsSectionProps {
  readonly workerId: string;
  /** Whether the labs of sessions are drawn as their authors placed the nodes. */
  readonly isDrawn?: boolean;
}

export function LabsSection({ workerId, isDrawn = false }: LabsSectionProps) {
  useEffect(() => subscribeToLabs(workerId, api.listLabs), [workerId]);
  const known = labs.value;
  if (known === null || known.size === 0) return null;
  return (
    <section class="panel-section" aria-label="Labs">
      <h3>
        All labs <span class="count">{known.size}</span>
        <a class="section-link link-text" href={labsHref(workerId)}>
          Whose they are
        </a>
      </h3>
      <ul class="labs">
        {sortedLabs(known).map((lab) => (
          <LabItem key={lab.lab_id} lab={lab} picture={isDrawn ? <Picture workerId={workerId} lab={lab} /> : null} />
        ))}
      </ul>
    </section>
  );
}

/** The definition of the session whose lab it is; null for a lab that LCM did not make. */
function definitionOfLab(workerId: string, labId: string): string | null {
  const placed = entries.value.get(workerId)?.worker.value.sessions ?? [];
  const owners = placed.map((id) => sessions.value.get(id)?.session.value);
  return owners.find((session) => session?.lab?.lab_id === labId)?.definition_id ?? null;
}

function LabItem({ lab, picture }: { lab: Lab; picture: ComponentChildren }) {
  const nodes = sortedNodes(lab);
  return (
    <li class="lab" data-lab-id={lab.lab_id} data-state={lab.state ?? ""}>
      <div class="lab-head">
        <span class="lab-title" title={lab.lab_id}>
          {lab.title ?? lab.lab_id}
        </span>
        <span class="badge" data-color={labColor(lab.state)}>
          <span class="dot" />
          {stateLabel(lab.state)}
        </span>
      </div>
      <span class="visually-hidden">{formatCount(nodes.length, "node")}</span>
      {picture}
      <ul class="nodes">
        {nodes.map(([id, node]) => (
          <NodeItem key={id} id={id} node={node} />
        ))}
      </ul>
    </li>
  );
}

/** With its links if a session owns the lab: of the others only the places of the nodes are known. */
function Picture({ workerId, lab }: { workerId: string; lab: Lab }) {
  const definitionId = definitionOfLab(workerId, lab.lab_id);
  const topology = definitionId === null ? placesOf(lab) : topologyOf(definitionId).value;
  if (topology === null || topology.nodes.length === 0) return null;
  const states = new Map(Object.values(lab.nodes).map(({ label, state }) => [label, state]));
  return <TopologyPicture topology={topology} stateOf={(label) => states.get(label) ?? null} />;
}

function NodeItem({ id, node }: { id: string; node: LabNode }) {
  const color = nodeColor(node.state);
  return (
    <li
      class="node"
      data-node-id={id}
      data-state={node.state ?? ""}
      data-color={color}
      data-moving={color === "orange"}
      title={`${node.label ?? id}: ${stateLabel(node.state)}`}
    >
      <span class="dot" />
      <span class="node-label">{node.label ?? id.slice(0, 8)}</span>
      <span class="node-state">{stateLabel(node.state)}</span>
    </li>
  );
}
