import { describe, expect, test } from "vitest";
import { canAbandon } from "../src/features/lablets/model";
import {
  bootStart,
  bootTime,
  countBooted,
  hasProgress,
  inWords,
  isStoppedOutside,
  seeNodes,
  stepsOf,
} from "../src/features/lablets/progress";
import type { SessionLab } from "../src/generated/api";
import { LAB_STEPS } from "../src/generated/rules";
import { lablet } from "./examples";

const START = "2026-03-02T10:00:00Z";
const T0 = Date.parse(START);

const LAB: SessionLab = {
  title: "lcm-1-g1",
  generation: 1,
  intent_at: START,
  instance_id: "i-1",
  lab_id: null,
  imported_at: null,
  started_at: null,
  left_queue_at: null,
  booted_at: null,
  is_adopted: false,
  claim_lost_at: null,
};
const IMPORTED: SessionLab = { ...LAB, lab_id: "lab-1", imported_at: "2026-03-02T10:00:03Z" };

describe("the steps of a lab", () => {
  const of = (fields: Parameters<typeof lablet>[0], id: string) =>
    stepsOf(lablet({ status: "instantiating", ...fields })).find((step) => step.id === id);

  test("a session that is being started shows every step of bringing up, before any is reported", () => {
    const steps = stepsOf(lablet({ status: "scheduled" }));
    expect(steps.map(({ id, status }) => `${id} ${status}`)).toEqual([
      "import pending",
      "check pending",
      "start pending",
      "boot pending",
    ]);
  });

  test("every step has a label", () => {
    const steps = Object.fromEntries(LAB_STEPS.map((id) => [id, { status: "running" } as const]));
    const lines = stepsOf(lablet({ lab: IMPORTED, steps }));
    expect(lines.map(({ id }) => id)).toEqual([...LAB_STEPS]);
    expect(lines.every(({ label }) => label !== "")).toBe(true);
  });

  test("the import runs from its intent until the lab is recorded", () => {
    expect(of({ lab: LAB }, "import")).toMatchObject({ status: "running", startedAt: START, endedAt: null });
    expect(of({ lab: IMPORTED }, "import")).toMatchObject({ status: "completed", endedAt: IMPORTED.imported_at });
    expect(of({ lab: { ...IMPORTED, generation: 2, is_adopted: true } }, "import")).toMatchObject({
      tries: "try 2",
      detail: "CML did not answer; the lab was found by its marker.",
    });
  });

  test("a boot says which of its tries it is, and a failed step why without its code", () => {
    const boot = { status: "failed", attempts: 2, detail: "boot_timeout: not booted in time: r1" } as const;
    expect(of({ lab: IMPORTED, steps: { boot } }, "boot")).toMatchObject({
      tries: "try 2 of 3",
      color: "red",
      detail: "not booted in time: r1",
    });
  });

  test("a removal is shown once there is one", () => {
    expect(of({ lab: IMPORTED }, "wipe")).toBeUndefined();
    expect(of({ lab: IMPORTED, steps: { wipe: { status: "completed" } } }, "wipe")).toBeDefined();
  });

  test("only a code is taken away", () => {
    expect(inWords("start_refused: license: none left")).toBe("license: none left");
    expect(inWords("Error: none left")).toBe("Error: none left");
  });

  test("a session that has and gets no lab shows none", () => {
    expect(hasProgress(lablet({ status: "pending_scheduling" }))).toBe(false);
    expect(hasProgress(lablet({ status: "terminated" }))).toBe(false);
    expect(hasProgress(lablet({ status: "failed", lab: IMPORTED }))).toBe(true);
  });

  test("a lab that is at rest is started again while its session runs", () => {
    const run = { status: "failed", attempts: 1, detail: "lab_stopped_outside: the lab was stopped" } as const;
    expect(isStoppedOutside(lablet({ steps: { run } }))).toBe(true);
    expect(isStoppedOutside(lablet({ steps: { run: { status: "running" } } }))).toBe(false);
    expect(isStoppedOutside(lablet({ steps: { run }, status: "stopping" }))).toBe(false);
    expect(isStoppedOutside(lablet({ steps: { run }, desired_status: "terminated" }))).toBe(false);
  });

  test("a lab is abandoned while it is removed and not proven gone", () => {
    expect(canAbandon(lablet({ status: "running" }))).toBe(false);
    expect(canAbandon(lablet({ status: "stopping" }))).toBe(true);
    expect(canAbandon(lablet({ status: "stopping", cleanup: { proof: "lab_absent" } }))).toBe(false);
  });
});

describe("the nodes of a lab", () => {
  const first = seeNodes(null, { r1: "STARTED", r2: "BOOTED" }, T0 + 10_000);

  test("a node that boots counts the seconds, one that was seen to boot keeps them", () => {
    expect(bootTime(first, "r1", START, T0 + 12_000)).toBe("12 s");
    const next = seeNodes(first, { r1: "BOOTED", r2: "BOOTED" }, T0 + 20_000);
    expect(bootTime(next, "r1", START, T0 + 99_000)).toBe("20 s");
    const last = seeNodes(next, { r1: "BOOTED", r2: "STOPPED" }, T0 + 40_000);
    expect(bootTime(last, "r1", START, T0 + 99_000)).toBe("20 s");
  });

  test("a node that had booted before the page was opened has no time", () => {
    expect(bootTime(first, "r2", START, T0 + 12_000)).toBe("");
  });

  test("a node that boots anew counts from the new start", () => {
    const again = seeNodes(first, { r1: "BOOTED", r2: "STARTED" }, T0 + 20_000);
    expect(bootTime(again, "r1", "2026-03-02T10:00:30Z", T0 + 40_000)).toBe("");
    expect(bootTime(again, "r2", "2026-03-02T10:00:30Z", T0 + 40_000)).toBe("10 s");
  });

  test("the start is that of the last boot", () => {
    expect(bootStart(lablet({ lab: { ...IMPORTED, started_at: "b" }, steps: {} }))).toBe("b");
    expect(bootStart(lablet({ steps: { boot: { status: "running", started_at: "c" } } }))).toBe("c");
    expect(bootTime(first, "r1", null, T0)).toBe("");
  });

  test("are counted", () => {
    expect(countBooted(first.states)).toBe(1);
  });
});
