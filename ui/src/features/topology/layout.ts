/** Where the nodes of a topology are drawn; the rules that need no browser. */

export interface DrawnNode {
  readonly label: string;
  /** Its node definition; null where it is not known. */
  readonly definition: string | null;
  readonly x: number;
  readonly y: number;
}

export interface Topology {
  readonly nodes: readonly DrawnNode[];
  /** The places of both ends among the nodes. */
  readonly links: readonly (readonly [number, number])[];
}

export interface Place {
  /** Percent of the width and of the height. */
  readonly left: number;
  readonly top: number;
}

export interface Layout {
  /** In the order of the nodes. */
  readonly places: readonly Place[];
  /** Pixels. */
  readonly height: number;
}

const WIDTH = 600;
const LOWEST = 130;
const HIGHEST = 420;
const ROW = 110;
/** Room for the labels at the edges, and below the lowest node. */
const SIDE = 9;
const TOP = 14;
const BOTTOM = 24;

/** The nodes as the author placed them, stretched over the picture. */
export function layoutOf({ nodes }: Pick<Topology, "nodes">): Layout {
  const across = spanOf(
    nodes.map(({ x }) => x),
    SIDE,
    SIDE,
  );
  const down = spanOf(
    nodes.map(({ y }) => y),
    TOP,
    BOTTOM,
  );
  const scale = across.length > 0 ? WIDTH / across.length : 1;
  const wanted = down.length * Math.min(scale, 1) + ROW;
  return {
    places: nodes.map(({ x, y }) => ({ left: across.place(x), top: down.place(y) })),
    height: Math.round(Math.min(HIGHEST, Math.max(LOWEST, wanted))),
  };
}

interface Span {
  readonly length: number;
  readonly place: (value: number) => number;
}

/** Nodes that all stand on one line stand in the middle. */
function spanOf(values: readonly number[], before: number, after: number): Span {
  const low = Math.min(...values);
  const length = values.length === 0 ? 0 : Math.max(...values) - low;
  const room = 100 - before - after;
  const place = (value: number) => before + room * (length === 0 ? 0.5 : (value - low) / length);
  return { length, place };
}
