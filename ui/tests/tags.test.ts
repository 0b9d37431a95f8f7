import { describe, expect, test } from "vitest";
import { tagProblem, tagRows, tagsOf, withoutRow, withRow } from "../src/features/worker/tags";

const TAGS = { team: "networking", course: "a=b" };

describe("the rows of a worker's tags", () => {
  test("what is shown and not touched is what is sent", () => {
    expect(tagsOf(tagRows(TAGS))).toEqual(TAGS);
  });

  test("the last row is always empty", () => {
    const empty = { key: "", value: "" };
    expect(tagRows({})).toEqual([empty]);
    expect(withRow(tagRows({}), 0, { key: "team" })).toEqual([{ key: "team", value: "" }, empty]);
    expect(withRow(withRow(tagRows({}), 0, { key: "t" }), 0, { key: "te" })).toHaveLength(2);
    expect(withoutRow([{ key: "team", value: "x" }], 0)).toEqual([empty]);
  });

  test("a removed row is no longer a tag", () => {
    expect(tagsOf(withoutRow(tagRows(TAGS), 0))).toEqual({ course: "a=b" });
  });

  test("spaces around a key or a value are no part of it", () => {
    expect(tagsOf([{ key: " team ", value: " x " }])).toEqual({ team: "x" });
  });
});

describe("invalid tags", () => {
  test.each([
    [[{ key: "", value: "x" }], "The value “x” has no key."],
    [
      [
        { key: "team", value: "x" },
        { key: "team ", value: "y" },
      ],
      "“team” appears twice.",
    ],
    [Array.from({ length: 41 }, (_, n) => ({ key: `k${n}`, value: "" })), "these are 41"],
  ])("%j", (rows, hint) => {
    expect(tagProblem(rows)).toContain(hint);
  });

  test("no rows remove all tags", () => {
    expect(tagProblem(tagRows({}))).toBeNull();
    expect(tagsOf(tagRows({}))).toEqual({});
  });
});
