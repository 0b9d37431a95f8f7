import { describe, expect, test } from "vitest";
import { formOf, termsOf, termsProblem, termsText } from "../src/features/license/terms";
import type { LicenseTerms } from "../src/generated/api";

const ALL: LicenseTerms = {
  product_license: "CML_Enterprise",
  node_count: 40,
  ssms_url: "https://ssms.example.com/licservice/license",
  proxy_host: "proxy.example.com",
  proxy_port: 3128,
};
const EMPTY = formOf({});

describe("the terms of a license", () => {
  test("are shown as they are set and sent as they are shown", () => {
    expect(termsOf(formOf(ALL))).toEqual(ALL);
  });

  test("that are not filled in are left as CML has them", () => {
    expect(Object.values(termsOf(EMPTY))).toEqual([null, null, null, null, null]);
    expect(termsProblem(EMPTY)).toBeNull();
  });

  test.each([
    [{ nodes: "many" }, "whole number"],
    [{ nodes: "-1" }, "whole number"],
    [{ server: "ssms.example.com" }, "https://"],
    [{ server: "https://me:secret@ssms.example.com" }, "without a login"],
    [{ proxyHost: "proxy", proxyPort: "70000" }, "65535"],
    [{ proxyHost: "proxy" }, "a host and a port"],
    [{ proxyPort: "3128" }, "a host and a port"],
  ])("%o is refused with what to enter", (typed, part) => {
    expect(termsProblem({ ...EMPTY, ...typed })).toContain(part);
  });

  test("are told in a few words", () => {
    expect(termsText(ALL)).toBe(
      "Enterprise, 40 more nodes, from https://ssms.example.com/licservice/license, through proxy.example.com:3128",
    );
    expect(termsText({})).toBe("");
  });
});
