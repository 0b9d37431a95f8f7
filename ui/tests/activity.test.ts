import { expect, test } from "vitest";
import { activityHref, boundOf, fieldOf, filterOf, queryOf } from "../src/features/activity/activity";

const NIGHT = "since=2026-11-18T20%3A00%3A00.000Z&until=2026-11-19T06%3A00%3A00.000Z";

test("a link leads to the same part of the past, and the export has the same bounds", () => {
  const filter = filterOf(new URLSearchParams(`kind=worker&${NIGHT}`));
  expect(queryOf(filter).toString()).toBe(`kind=worker&${NIGHT}`);
  expect(activityHref(filter, { format: "csv" })).toBe(`/api/activity?kind=worker&${NIGHT}&format=csv`);
});

test("what is no time bounds nothing", () => {
  expect(queryOf(filterOf(new URLSearchParams("since=yesterday&until="))).toString()).toBe("");
  expect([boundOf(""), fieldOf("")]).toEqual(["", ""]);
});

test("a bound is what its field shows", () => {
  const bound = "2026-11-19T06:30:00.000Z";
  expect(boundOf(fieldOf(bound))).toBe(bound);
});
