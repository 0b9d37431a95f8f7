import { beforeEach, describe, expect, test } from "vitest";
import { applyWorkers } from "../src/app/store";
import { opposite } from "../src/app/undo";
import { planOf, warningOf } from "../src/features/fleet/bulk";
import { queryOfView, viewFrom } from "../src/features/fleet/filter";
import { forgetView, savedViews, saveView, viewHref } from "../src/features/fleet/saved-views";
import { clearSelection, selectedEntries, selectListed, toggleSelected } from "../src/features/fleet/selection";
import { filterText } from "../src/features/fleet/view";
import { worker } from "./examples";

describe("the URL of the fleet", () => {
  test("leads to the same list", () => {
    const query = "q=ccna&status=running%2Cattention&terminated=&sort=-age&columns=status%2Cload&density=compact";
    expect(queryOfView(viewFrom(new URLSearchParams(query)))).toBe(query);
  });

  test("of the list as it begins has no query, and what it does not know is left out", () => {
    expect(queryOfView(viewFrom(new URLSearchParams("status=moon&sort=load&density=9")))).toBe("");
  });

  test("names columns only if some are left out, and none is a choice, too", () => {
    const all = "columns=status,load,template,region,cml,address,age";
    expect(viewFrom(new URLSearchParams(all)).columns).toBeNull();
    expect(viewFrom(new URLSearchParams("columns=")).columns).toEqual(new Set());
    expect(queryOfView(viewFrom(new URLSearchParams("columns=")))).toBe("columns=");
  });
});

describe("saved views", () => {
  const names = () => savedViews.value.map(({ name }) => name);

  test("stand in the order of their names, and one of the same name is replaced", () => {
    for (const [name, query] of [
      ["night", "sort=-age"],
      ["class", "q=ccna"],
      ["night", "status=attention"],
    ] as const)
      saveView(name, query);
    expect(names()).toEqual(["class", "night"]);
    expect(savedViews.value.map(viewHref)).toEqual(["#/?q=ccna", "#/?status=attention"]);
    forgetView("class");
    expect(names()).toEqual(["night"]);
  });

  test("hold in this page where the browser stores nothing, which is said", () => {
    expect(saveView("lost", "")).toBe(false);
    expect(names()).toContain("lost");
  });
});

describe("undo", () => {
  const running = worker({ possible_actions: ["stop", "drain"] });

  test("is the opposite of an action while the server allows that", () => {
    const answer = worker({ desired_status: "stopped", possible_actions: ["start", "delete"] });
    expect(opposite("stop", running, answer)).toBe("start");
    expect(opposite("drain", running, worker({ status: "draining", possible_actions: ["cancel-drain"] }))).toBe(
      "cancel-drain",
    );
    expect(opposite("cancel-drain", running, worker({ possible_actions: ["start", "stop"] }))).toBeNull();
  });

  test("does not exist for a deletion, nor for a stop that has ended a drain", () => {
    const answer = worker({ possible_actions: ["start", "stop", "delete"] });
    expect(opposite("delete", running, answer)).toBeNull();
    expect(opposite("stop", worker({ status: "draining" }), answer)).toBeNull();
  });
});

describe("the selection", () => {
  const ids = () => selectedEntries.value.map(({ id }) => id);

  beforeEach(() => {
    clearSelection();
    filterText.value = "";
    applyWorkers(["a", "b", "c", "d"].map((name) => worker({ name })));
  });

  test("with Shift reaches from the last choice to this one, in either direction", () => {
    toggleSelected("d");
    toggleSelected("b", true);
    expect(ids()).toEqual(["b", "c", "d"]);
    toggleSelected("d", true);
    expect(ids()).toEqual([]);
  });

  test("never reaches a worker that the filter hides", () => {
    selectListed(true);
    filterText.value = "b";
    expect(ids()).toEqual(["b"]);
    filterText.value = "";
    expect(ids()).toHaveLength(4);
  });
});

describe("a request to many workers", () => {
  test("names those that it leaves as they are, by reason", () => {
    const running = worker({ name: "a", possible_actions: ["stop"] });
    const stopped = worker({ name: "b", status: "stopped", desired_status: "stopped" });
    const { changed, skipped } = planOf([running, stopped], "stop");
    expect(changed).toEqual([running]);
    expect([...skipped]).toEqual([["Already the desired status.", [stopped]]]);
  });

  test("holds only what could be paused", () => {
    const stopped = worker({ name: "b", status: "stopped", desired_status: "stopped" });
    expect(planOf([worker(), stopped], "hold").changed).toHaveLength(1);
  });

  test("adopts only what LCM does not trust", () => {
    const found = worker({ name: "b", imported: true, is_trusted: false });
    const { changed, skipped } = planOf([worker(), found], "adopt");
    expect(changed).toEqual([found]);
    expect([...skipped.keys()]).toEqual(["LCM trusts it already."]);
  });

  test("says what is lost, and how many sessions are there", () => {
    const used = worker({ sessions: ["s-1", "s-2"] });
    expect(warningOf("stop", [used])).toBe(
      "Running nodes are powered off. 2 lablet sessions on them have their labs there.",
    );
    expect(warningOf("delete", [worker()])).toContain("disks are lost");
    expect(warningOf("drain", [used])).toBeNull();
  });
});
