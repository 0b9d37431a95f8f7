import { beforeEach, describe, expect, test } from "vitest";
import {
  announcement,
  applyWorkers,
  clearStore,
  desiredStatus,
  entries,
  replaceWorkers,
  type WorkerEntry,
} from "../src/app/store";
import { chosenGroups, rows, showTerminated } from "../src/features/fleet/view";
import { worker } from "./examples";

function entry(id: string): WorkerEntry {
  const found = entries.value.get(id);
  if (found === undefined) throw new Error(`no worker ${id}`);
  return found;
}

describe("what the page knows", () => {
  beforeEach(() => {
    clearStore();
    chosenGroups.value = new Set();
    showTerminated.value = false;
  });

  test("a late response does not undo a newer event", () => {
    applyWorkers([worker({ id: "a", version: 5, status: "stopping" })]);
    applyWorkers([worker({ id: "a", version: 4, status: "running" })]);
    expect(entry("a").worker.value.status).toBe("stopping");
  });

  test("the newest of several versions in one burst wins", () => {
    applyWorkers([
      worker({ id: "a", version: 2, status: "running" }),
      worker({ id: "a", version: 1, status: "starting" }),
    ]);
    expect(entry("a").worker.value.status).toBe("running");
  });

  test("a snapshot wins over everything, even with an older version, and keeps the row", () => {
    applyWorkers([worker({ id: "a", version: 9 }), worker({ id: "b" })]);
    const row = entry("a");
    replaceWorkers([worker({ id: "a", version: 1, status: "stopped" })]);
    expect([...entries.value.keys()]).toEqual(["a"]);
    expect(entry("a")).toBe(row);
    expect(row.worker.value.status).toBe("stopped");
  });

  test("a snapshot leaves terminated workers out, and the page keeps them", () => {
    applyWorkers([worker({ id: "gone", status: "terminated" })]);
    replaceWorkers([worker({ id: "a" })]);
    expect([...entries.value.keys()].sort()).toEqual(["a", "gone"]);
  });

  test("a request shows before it is answered", () => {
    applyWorkers([worker({ id: "a", desired_status: "running" })]);
    entry("a").pending.value = "stop";
    expect(desiredStatus(entry("a"))).toBe("stopped");
  });

  test("a change of status is announced by name, many only by their number", () => {
    const ids = ["a", "b", "c", "d"];
    applyWorkers(ids.map((id) => worker({ id, name: id })));
    applyWorkers([worker({ id: "a", name: "a", version: 2, status: "draining" })]);
    expect(announcement.value).toBe("a is draining");
    applyWorkers(ids.map((id) => worker({ id, name: id, version: 3, status: "stopped" })));
    expect(announcement.value).toBe("4 workers changed status");
  });
});

describe("the rows", () => {
  beforeEach(() => {
    clearStore();
    chosenGroups.value = new Set();
    showTerminated.value = false;
    applyWorkers([
      worker({ id: "a", name: "a" }),
      worker({ id: "b", name: "b", status: "failed" }),
      worker({ id: "c", name: "c", status: "terminated" }),
    ]);
  });

  const listed = () => rows.value.map(({ id }) => id);

  test("terminated workers are listed only if asked for", () => {
    expect(listed()).toEqual(["a", "b"]);
    showTerminated.value = true;
    expect(listed()).toEqual(["a", "b", "c"]);
  });

  test("groups narrow the list", () => {
    chosenGroups.value = new Set(["attention"]);
    expect(listed()).toEqual(["b"]);
  });

  test("a change that moves no row leaves the list as it is", () => {
    const before = rows.value;
    applyWorkers([worker({ id: "a", name: "a", version: 2, public_ip: "52.1.2.3" })]);
    expect(rows.value).toBe(before);
  });
});
