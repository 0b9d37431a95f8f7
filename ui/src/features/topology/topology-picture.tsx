/** A lab as its author drew it. While it runs, each node has the color of its state. */

import { useMemo } from "preact/hooks";
import { nodeColor, stateLabel } from "../labs/labs";
import { layoutOf, type Topology } from "./layout";

/** More labels than these would cover each other. */
const MAX_LABELLED = 40;

interface PictureProps {
  readonly topology: Topology;
  /** The state of a node by its label; null: the lab does not run. */
  readonly stateOf: ((label: string) => string | null) | null;
}

export function TopologyPicture({ topology, stateOf }: PictureProps) {
  const { places, height } = useMemo(() => layoutOf(topology), [topology]);
  const { nodes, links } = topology;
  return (
    <div class="topology" style={{ height: `${height}px` }} data-dense={nodes.length > MAX_LABELLED}>
      <svg class="topology-links" viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">
        {links.map(([from, to], index) => (
          <line
            key={index}
            x1={places[from]?.left}
            y1={places[from]?.top}
            x2={places[to]?.left}
            y2={places[to]?.top}
            vector-effect="non-scaling-stroke"
          />
        ))}
      </svg>
      <ul class="topology-nodes" aria-label="Topology">
        {nodes.map((node, index) => {
          const place = places[index];
          const state = stateOf?.(node.label) ?? null;
          const words = stateOf === null ? node.definition : stateLabel(state);
          const kind = node.definition === null ? "" : ` (${node.definition})`;
          const color = nodeColor(state);
          return (
            <li
              key={index}
              class="topology-node"
              style={{ left: `${place?.left}%`, top: `${place?.top}%` }}
              data-node={node.label}
              data-state={state ?? ""}
              data-color={stateOf === null ? "blue" : color}
              data-moving={stateOf !== null && color === "orange"}
              title={`${node.label}${kind}${stateOf === null ? "" : `: ${words}`}`}
            >
              <span class="topology-shape" aria-hidden="true" />
              <span class="topology-label">{node.label}</span>
              <span class="visually-hidden">{words}</span>
            </li>
          );
        })}
      </ul>
    </div>
  );
}
