import { describe, expect, test } from "vitest";
import {
  actionDisabledReason,
  compareWorkers,
  denialReason,
  desiredAfter,
  effectiveActions,
  hasKvm,
  matchesText,
  nameProblem,
  panelActions,
  preselected,
  rowActions,
  type Sort,
  statusInfo,
  suggestName,
  usdPerHour,
} from "../src/features/worker/model";
import type { WorkerStatus } from "../src/generated/api";
import { BILLED, STATUSES } from "../src/generated/rules";
import { template, worker } from "./examples";

describe("statuses", () => {
  test.each<[WorkerStatus, string]>([
    ["running", "green"],
    ["pending", "orange"],
    ["provisioning", "orange"],
    ["starting", "orange"],
    ["failed", "red"],
    ["terminating", "red"],
    ["stopped", "grey"],
    ["terminated", "grey"],
    ["draining", "blue"],
    ["unknown", "purple"],
  ])("%s is %s", (status, color) => {
    expect(statusInfo(status).color).toBe(color);
  });

  test("a status from a newer server is shown as unknown", () => {
    expect(statusInfo("hibernating" as WorkerStatus)).toBe(statusInfo("unknown"));
  });
});

describe("the running cost", () => {
  test("counts what EC2 bills, and nothing else: a worker that is stopping costs nothing any more", () => {
    const billed = STATUSES.filter((status) => usdPerHour([worker({ status })], [template({ usd_per_hour: 2 })]) > 0);
    expect(billed).toEqual(BILLED);
    expect(billed).not.toContain("stopping");
  });

  test("a template without a known price costs nothing rather than breaking the sum", () => {
    const workers = [worker({ template_name: "gone" }), worker({ template_name: "small" })];
    expect(usdPerHour(workers, [template({ name: "small", usd_per_hour: 0.5 })])).toBe(0.5);
  });
});

describe("actions", () => {
  test("a request for the present desired status is not offered", () => {
    const possible_actions = ["delete", "start", "stop"] as const;
    expect(effectiveActions(worker({ possible_actions, desired_status: "running" }))).toEqual(["stop", "delete"]);
    expect(effectiveActions(worker({ possible_actions, desired_status: "stopped" }))).toEqual(["start", "delete"]);
    expect(effectiveActions(worker({ possible_actions: ["delete"], desired_status: "terminated" }))).toEqual([]);
  });

  test("a drain can be left by its cancellation and by a stop", () => {
    const draining = worker({
      status: "draining",
      desired_status: "stopped",
      possible_actions: ["cancel-drain", "delete", "start", "stop"],
    });
    expect(effectiveActions(draining)).toEqual(["cancel-drain", "stop", "delete"]);
    expect(rowActions(draining)).toEqual(["cancel-drain", "delete"]);
  });

  test("a row leaves the drain to the panel", () => {
    const running = worker({ possible_actions: ["delete", "drain", "start", "stop"] });
    expect(effectiveActions(running)).toEqual(["stop", "drain", "delete"]);
    expect(rowActions(running)).toEqual(["stop", "delete"]);
  });

  test("the panel has a fixed place for each action, and says why one is disabled", () => {
    const running = worker({ possible_actions: ["delete", "drain", "start", "stop"] });
    expect(panelActions(running)).toEqual(["start", "stop", "drain", "delete"]);
    expect(actionDisabledReason(running, "drain")).toBeNull();
    expect(actionDisabledReason(running, "start")).toBe("Already the desired status.");
    const stopped = worker({ status: "stopped", desired_status: "stopped", possible_actions: ["delete", "start"] });
    expect(panelActions(stopped)).toEqual(["start", "stop", "drain", "delete"]);
    const starting = worker({ status: "starting", possible_actions: ["delete", "start", "stop"] });
    expect(actionDisabledReason(starting, "drain")).toBe("Not possible while starting.");
    expect(panelActions(worker({ status: "draining" }))).toEqual(["start", "stop", "cancel-drain", "delete"]);
    expect(panelActions(worker({ status: "failed" }))).toEqual(["retry", "stop", "drain", "delete"]);
  });

  test("after a drain stopped is desired, after its cancellation running", () => {
    expect([desiredAfter("drain"), desiredAfter("cancel-drain")]).toEqual(["stopped", "running"]);
  });

  test("a viewer reads, an operator runs, an admin creates and deletes", () => {
    expect(denialReason("viewer", "stop")).toBe("Needs the role operator; you are signed in as viewer.");
    expect(denialReason("operator", "stop")).toBeNull();
    expect(denialReason("operator", "delete")).toContain("admin");
    expect(denialReason("operator", "hold")).toBeNull();
    expect(denialReason("viewer", "drain")).toContain("operator");
    expect(denialReason("operator", "license")).toContain("admin");
    expect(denialReason("operator", "cml-login")).toContain("admin");
    expect(denialReason("admin", "cml-login")).toBeNull();
    expect(denialReason("operator", "certificate")).toContain("admin");
    expect(denialReason("admin", "create")).toBeNull();
  });
});

describe("the filter", () => {
  const found = worker({ name: "bgp-lab-01", public_ip: "52.1.2.3", template_name: "metal", id: "01JABC" });

  test.each(["BGP", "52.1.2", "metal", "01jabc", " lab "])("finds by %s", (text) => {
    expect(matchesText(found, text)).toBe(true);
  });

  test("leaves out the others", () => {
    expect(matchesText(found, "ospf")).toBe(false);
  });
});

describe("sorting", () => {
  function order(sort: Sort, ...workers: ReturnType<typeof worker>[]): string[] {
    return workers.sort(compareWorkers(sort)).map(({ name }) => name);
  }

  test("numbers in names count as numbers", () => {
    const names = order({ column: "name", descending: false }, worker({ name: "w-10" }), worker({ name: "w-9" }));
    expect(names).toEqual(["w-9", "w-10"]);
  });

  test("by status, what needs attention comes first", () => {
    const names = order(
      { column: "status", descending: false },
      worker({ name: "b", status: "running" }),
      worker({ name: "c", status: "terminating" }),
      worker({ name: "a", status: "failed" }),
    );
    expect(names).toEqual(["a", "b", "c"]);
  });

  test("by age, the youngest comes first", () => {
    const names = order(
      { column: "age", descending: false },
      worker({ name: "old", created_at: "2026-01-01T00:00:00Z" }),
      worker({ name: "young", created_at: "2026-02-01T00:00:00Z" }),
    );
    expect(names).toEqual(["young", "old"]);
  });

  test("equal workers keep the order of their names in both directions", () => {
    for (const descending of [false, true]) {
      const names = order({ column: "region", descending }, worker({ name: "b" }), worker({ name: "a" }));
      expect(names).toEqual(["a", "b"]);
    }
  });
});

describe("names", () => {
  test.each(["a", "cml-01", "0", "a".repeat(63)])("%s is fine", (name) => {
    expect(nameProblem(name)).toBeNull();
  });

  test.each([
    ["", "name"],
    ["Lab", "Lower case"],
    ["my lab", "Only"],
    ["-lab", "Begin and end"],
    ["lab-", "Begin and end"],
    ["a".repeat(64), "63"],
  ])("%s is rejected with a hint how to correct it", (name, hint) => {
    expect(nameProblem(name)).toContain(hint);
  });

  test("the suggestion is the first one that is free", () => {
    expect(suggestName([])).toBe("cml-01");
    expect(suggestName(["cml-01", "cml-03"])).toBe("cml-02");
  });
});

describe("the preselected template", () => {
  const micro = template({ name: "micro", instance_type: "t3.micro" });
  const nested = template({ name: "nested", instance_type: "m8i.large", nested_virtualization: true });
  const metal = template({ name: "metal", instance_type: "m5zn.metal" });

  test("is the default, else the first that can run CML, never one that cannot", () => {
    expect(preselected([micro, nested, { ...metal, default: true }])?.name).toBe("metal");
    expect(preselected([micro, nested, metal])?.name).toBe("nested");
    expect(preselected([micro])).toBeUndefined();
  });

  test("has KVM on bare metal or by nested virtualization", () => {
    expect([micro, nested, metal].map(hasKvm)).toEqual([false, true, true]);
    expect(hasKvm(template({ instance_type: "c8i.metal-48xl" }))).toBe(true);
  });
});
