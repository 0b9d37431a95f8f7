import { expect, test } from "vitest";
import { readyText } from "../src/features/definitions/definitions";

test("a definition says how long its labs take to come up, and where too few are known", () => {
  expect(readyText({ median_ready_seconds: 95 })).toBe("2 min (median)");
  expect(readyText({ median_ready_seconds: null })).toContain("not known yet");
});
