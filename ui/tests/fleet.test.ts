import { beforeEach, describe, expect, test } from "vitest";
import { applyWorkers } from "../src/app/store";
import { planOf, warningOf } from "../src/features/fleet/bulk";
import { queryOfView, viewFrom } from "../src/features/fleet/filter";
import { clearSelection, selectedEntries, selectListed, toggleSelected } from "../src/features/fleet/selection";
import { filterText } from "../src/features/fleet/view";
import { worker } from "./examples";

describe("the URL of the fleet", () => {
  test("leads to the same list", () => {
    const query = "q=ccna&status=running%2Cattention&terminated=&sort=-age";
    expect(queryOfView(viewFrom(new URLSearchParams(query)))).toBe(query);
  });

  test("of the list as it begins has no query, and what it does not know is left out", () => {
    expect(queryOfView(viewFrom(new URLSearchParams("status=moon&sort=load")))).toBe("");
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
