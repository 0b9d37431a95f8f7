import { describe, expect, test } from "vitest";
import { countReady, seatsOf } from "../src/features/lablets/class-sheet";
import type { SeatAccess } from "../src/generated/api";
import { formatBytes } from "../src/kit/format";
import { lablet } from "./examples";

const batch = { id: "b-1", name: "CCNA", index: 0, size: 2, is_all_or_nothing: false };

describe("the access sheet of a class", () => {
  const seats = [lablet({ id: "s-1", batch }), lablet({ id: "s-2", batch, status: "ready" }), lablet({ id: "other" })];

  test("changes with the sessions of its seats and with nothing else", () => {
    const known = seatsOf(seats, "b-1");
    expect(seatsOf([...seats].reverse(), "b-1")).toBe(known);
    expect(seatsOf([...seats, lablet({ id: "another" })], "b-1")).toBe(known);
    expect(seatsOf([lablet({ id: "s-1", batch, status: "stopping" }), ...seats.slice(1)], "b-1")).not.toBe(known);
    expect(seatsOf([...seats, lablet({ id: "s-3", batch })], "b-1")).not.toBe(known);
  });

  test("counts the seats with access", () => {
    expect(countReady([{ access: null } as SeatAccess, { access: {} } as SeatAccess])).toBe(1);
  });
});

test("sizes of files", () => {
  expect([512, 33_700, 999_600, 1_234_567].map(formatBytes)).toEqual(["512 B", "34 kB", "1.0 MB", "1.2 MB"]);
});
