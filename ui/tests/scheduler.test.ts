import { describe, expect, test } from "vitest";
import { binsOf, expectedText, filledText, outcomeInfo } from "../src/features/scheduler/scheduler";
import type { Outcome } from "../src/generated/api";
import { DEMAND, lablet, worker } from "./examples";

const DECLARED = { cpu: 10, memory_gb: 100, storage_gb: 100, nodes: 20 };

function needing(cpu: number, memory_gb: number) {
  return { ...DEMAND, needs: { cpu, memory_gb, storage_gb: 1, nodes: 1 } };
}

describe("the bins", () => {
  test("claims fill a worker, and what counts on it comes after them", () => {
    const sessions = [
      lablet({
        id: "waits",
        status: "pending_scheduling",
        demand: needing(1, 10),
        nominated: { worker_id: "w-1", ready_at: "2026-11-19T12:00:00Z" },
      }),
      lablet({ id: "runs", status: "running", worker_id: "w-1", demand: needing(4, 25) }),
    ];
    const [bin] = binsOf([worker({ declared_capacity: DECLARED })], sessions);
    expect(
      bin?.segments.map(({ session, cpu, memory, isNominated }) => [session.id, cpu, memory, isNominated]),
    ).toEqual([
      ["runs", 40, 25, false],
      ["waits", 10, 10, true],
    ]);
  });

  test("claims above what is declared fill the bin and no more", () => {
    const sessions = ["a", "b"].map((id) =>
      lablet({ id, status: "running", worker_id: "w-1", demand: needing(10, 10) }),
    );
    const [bin] = binsOf([worker({ declared_capacity: DECLARED })], sessions);
    expect(bin?.segments.map(({ cpu }) => cpu)).toEqual([50, 50]);
  });

  test("ended sessions, terminated workers and those of unknown size are left out", () => {
    const ended = lablet({ id: "e", status: "archived", worker_id: "w-1" });
    const workers = [
      worker({ declared_capacity: DECLARED }),
      worker({ id: "w-2", name: "w-2" }),
      worker({ id: "w-3", name: "w-3", declared_capacity: DECLARED, status: "terminated" }),
    ];
    const bins = binsOf(workers, [ended]);
    expect(bins.map(({ worker: { id }, segments }) => [id, segments.length])).toEqual([["w-1", 0]]);
  });
});

test("amounts are said in numbers", () => {
  expect(filledText(24.625, 192, "GB")).toBe("24.6 of 192 GB");
});

test("what is placed next is expected within a minute", () => {
  const now = Date.parse("2026-11-19T12:00:00Z");
  expect(expectedText("2026-11-19T12:00:00Z", now)).toBe("expected within a minute");
  expect(expectedText("2026-11-19T12:05:00Z", now)).toMatch(/^expected at .*05/);
});

test("an outcome of a newer server is shown as it is", () => {
  expect(outcomeInfo("preempt" as Outcome).label).toBe("preempt");
});
