import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { replaceWorkers } from "../src/app/store";
import { connection } from "../src/app/stream";
import {
  applyLabChange,
  applyLabStatus,
  applyLabs,
  type Lab,
  type LabChange,
  labs,
  nodeColor,
  placesOf,
  sortedLabs,
  sortedNodes,
  stateLabel,
  subscribeToLabs,
  trackLabs,
} from "../src/features/labs/labs";

const NOW = 1_000_000;

function lab(fields: Partial<Lab> = {}): Lab {
  return { lab_id: "l1", title: "BGP", state: "STARTED", nodes: {}, ...fields };
}

function node(event: string, fields: Partial<LabChange> = {}): LabChange {
  return { worker_id: "w", lab_id: "l1", element_type: "node", element_id: "n1", event, data: {}, ...fields };
}

const states = () =>
  Object.fromEntries(sortedNodes(labs.value?.get("l1") ?? lab()).map(([id, { state }]) => [id, state]));

describe("labs of the open worker", () => {
  beforeEach(() => {
    trackLabs("w");
    applyLabs("w", [lab({ nodes: { n1: { label: "R1", state: "QUEUED" } } })], NOW);
  });

  test("a node changes state as it happens and keeps its label", () => {
    applyLabChange(node("STARTED"), NOW);
    applyLabChange(node("BOOTED"), NOW);
    expect(labs.value?.get("l1")?.nodes["n1"]).toEqual({ label: "R1", state: "BOOTED" });
  });

  test("a node keeps its place in the picture, and one without a place is not drawn", () => {
    const nodes = { n1: { label: "R1", state: "QUEUED", x: -40, y: 90.5 }, n2: { label: "R2", state: null } };
    trackLabs("w");
    applyLabs("w", [lab({ nodes })], NOW);
    applyLabChange(node("BOOTED"), NOW);
    expect(placesOf(labs.value?.get("l1") ?? lab())).toEqual({
      nodes: [{ label: "R1", definition: null, x: -40, y: 90.5 }],
      links: [],
    });
  });

  test("nodes come and go", () => {
    applyLabChange(node("created", { element_id: "n2", data: { label: "R2", state: "DEFINED_ON_CORE" } }), NOW);
    applyLabChange(node("deleted"), NOW);
    expect(states()).toEqual({ n2: "DEFINED_ON_CORE" });
  });

  test("labs come and go", () => {
    applyLabChange(node("STARTED", { lab_id: "l2", element_type: "lab", data: { title: "OSPF" } }), NOW);
    expect(labs.value?.get("l2")?.title).toBe("OSPF");
    applyLabStatus({ worker_id: "w", lab_id: "l1", lab: null }, NOW);
    expect([...(labs.value?.keys() ?? [])]).toEqual(["l2"]);
  });

  test("what happens on another worker changes nothing", () => {
    applyLabChange(node("BOOTED", { worker_id: "other" }), NOW);
    applyLabs("other", [], NOW);
    expect(states()).toEqual({ n1: "QUEUED" });
  });

  test("an event wins over a response for five seconds", () => {
    applyLabChange(node("BOOTED"), NOW);
    const late = [lab({ nodes: { n1: { label: "R1", state: "QUEUED" }, n2: { label: "R2", state: "QUEUED" } } })];
    applyLabs("w", late, NOW + 4_999);
    expect(states()).toEqual({ n1: "BOOTED", n2: "QUEUED" });
    applyLabs("w", late, NOW + 5_000);
    expect(states()).toEqual({ n1: "QUEUED", n2: "QUEUED" });
  });

  test("a lab that an event deleted does not come back with a late response", () => {
    applyLabStatus({ worker_id: "w", lab_id: "l1", lab: null }, NOW);
    applyLabs("w", [lab()], NOW + 100);
    expect(labs.value?.size).toBe(0);
  });
});

describe("as text and colors", () => {
  test.each([
    ["BOOTED", "green"],
    ["STARTED", "orange"],
    ["QUEUED", "orange"],
    ["STOPPED", "grey"],
    [null, "grey"],
  ])("a node that is %s is %s", (state, color) => {
    expect(nodeColor(state)).toBe(color);
  });

  test("states read like words", () => {
    expect(stateLabel("DEFINED_ON_CORE")).toBe("defined on core");
  });

  test("numbers in titles sort as numbers", () => {
    const known = new Map(["lab 10", "lab 9"].map((title) => [title, lab({ lab_id: title, title })]));
    expect(sortedLabs(known).map(({ title }) => title)).toEqual(["lab 9", "lab 10"]);
  });
});

describe("the labs of a worker", () => {
  const fetchLabs = vi.fn(async (_: string): Promise<readonly Lab[]> => answer);
  let answer: readonly Lab[] = [];
  let stop: () => void;

  beforeEach(() => {
    connection.value = "live";
    answer = [lab()];
    fetchLabs.mockClear();
    stop = subscribeToLabs("w", fetchLabs);
  });

  afterEach(() => {
    stop();
    connection.value = "connecting";
  });

  const shown = async () => {
    await Promise.resolve();
    return [...(labs.value?.keys() ?? [])];
  };

  test("are fetched at once, and again when the stream has reconnected", async () => {
    expect(await shown()).toEqual(["l1"]);
    connection.value = "offline";
    answer = [lab({ lab_id: "l2" })];
    expect(await shown()).toEqual(["l1"]);
    connection.value = "live";
    expect(await shown()).toEqual(["l2"]);
    expect(fetchLabs).toHaveBeenCalledTimes(2);
  });

  test("are fetched again after a new snapshot without a reconnect", async () => {
    expect(await shown()).toEqual(["l1"]);
    answer = [lab({ lab_id: "l2" })];
    replaceWorkers([]);
    expect(await shown()).toEqual(["l2"]);
  });

  test("are not fetched after the panel has closed", () => {
    stop();
    replaceWorkers([]);
    expect(fetchLabs).toHaveBeenCalledTimes(1);
    expect(labs.value).toBeNull();
  });
});
