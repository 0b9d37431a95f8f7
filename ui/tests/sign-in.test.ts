import { expect, test } from "vitest";
import { refusalOf } from "../src/app/sign-in-refusal";

test.each(["refused", "no-role", "unavailable", "too-many"])("the reason %s is explained to the user", (reason) => {
  expect(refusalOf(reason)).toMatch(/\.$/);
});

test("a reason that LCM does not give shows nothing: anyone can write an address", () => {
  expect(refusalOf("<b>call 555</b>")).toBeNull();
});
