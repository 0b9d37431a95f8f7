import { describe, expect, test } from "vitest";
import { groupsOf, statedText } from "../src/features/definitions/definitions";
import { layoutOf } from "../src/features/topology/layout";
import type { LabletDefinitionView, TopologyAnalysis } from "../src/generated/api";

function nodes(...places: [number, number][]): Pick<TopologyAnalysis, "nodes"> {
  const node = { label: "r1", definition: "alpine", image: null, line: 1, cpus: 1, ram_mb: 512, disk_gb: 1 };
  return { nodes: places.map(([x, y]) => ({ ...node, has_vm: true, tags: [], x, y })) };
}

describe("the picture of a topology", () => {
  test("the outermost nodes stand at its edges, with room for their labels", () => {
    const { places } = layoutOf(nodes([-200, 0], [200, 300], [0, 150]));
    expect(places[0]).toEqual({ left: 9, top: 14 });
    expect(places[1]).toEqual({ left: 91, top: 76 });
    expect(places[2]).toEqual({ left: 50, top: 45 });
  });

  test("nodes on one line, a single node and none are drawn too", () => {
    expect(layoutOf(nodes([0, 7], [100, 7])).places.map(({ top }) => top)).toEqual([45, 45]);
    expect(layoutOf(nodes([3, 3])).places).toEqual([{ left: 50, top: 45 }]);
    expect(layoutOf(nodes()).places).toEqual([]);
  });

  test("it is never higher than a screen, however far the nodes are apart", () => {
    expect(layoutOf(nodes([0, 0], [1, 100_000])).height).toBe(420);
    expect(layoutOf(nodes([0, 0], [5_000, 10])).height).toBe(130);
  });
});

const NEEDS = { cpu: 2, memory_gb: 1.5, storage_gb: 2, nodes: 2 };

function definition(name: string, version: string, status: LabletDefinitionView["status"]): LabletDefinitionView {
  return {
    id: `${name}-${version}`,
    name,
    version,
    status,
    computed_needs: NEEDS,
    demand: { needs: NEEDS },
  } as unknown as LabletDefinitionView;
}

describe("definitions by name", () => {
  test("the newest active version is shown, and all versions newest first", () => {
    const [first, second] = groupsOf([
      definition("ospf", "1.9.0", "deprecated"),
      definition("bgp", "1.0.0", "active"),
      definition("ospf", "1.10.0", "active"),
      definition("ospf", "1.11.0", "deprecated"),
    ]);
    expect(first?.name).toBe("bgp");
    expect(second?.shown.version).toBe("1.10.0");
    expect(second?.versions.map(({ version }) => version)).toEqual(["1.11.0", "1.10.0", "1.9.0"]);
  });

  test("a definition without an active version shows its newest", () => {
    const [only] = groupsOf([definition("ospf", "1.9.0", "deprecated"), definition("ospf", "1.10.0", "deprecated")]);
    expect(only?.shown.version).toBe("1.10.0");
  });

  test("needs are named as stated only where they differ", () => {
    const computed = definition("ospf", "1.0.0", "active");
    expect(statedText(computed)).toBeNull();
    const stated = { ...computed, demand: { ...computed.demand, needs: { ...NEEDS, cpu: 4 } } };
    expect(statedText(stated)).toBe("4 CPU, 1.5 GB memory, 2 GB disk, 2 nodes");
  });
});
