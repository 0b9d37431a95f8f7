import { describe, expect, it } from "vitest";
import { changedFields, parsed } from "../src/features/settings/settings";

describe("what an edited document changes", () => {
  it("names each field that differs, with its value before and after", () => {
    const before = { cpu: 2, tags: { a: "1" }, gone: true, same: [1] };
    const after = { cpu: 4, tags: { a: "2" }, same: [1], added: null };
    expect(changedFields(before, after)).toEqual([
      { name: "cpu", before: "2", after: "4" },
      { name: "tags", before: '{"a":"1"}', after: '{"a":"2"}' },
      { name: "gone", before: "true", after: null },
      { name: "added", before: null, after: "null" },
    ]);
  });

  it("accepts an object only", () => {
    expect(parsed('{"a": 1}')).toEqual({ document: { a: 1 } });
    for (const text of ["[]", "null", "5", "{"]) expect(parsed(text)).toHaveProperty("mistake");
  });
});
