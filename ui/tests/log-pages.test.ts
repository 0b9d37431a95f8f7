import { expect, it } from "vitest";
import { countNewer, withNewest } from "../src/app/log-pages";

const page = (...ids: string[]) => ({ items: ids.map((id) => ({ id })), next: null });

it("counts what arrived since the list was shown", () => {
  const shown = page("3", "2", "1");
  expect(countNewer(shown, withNewest(shown, page("5", "4", "3", "2", "1")))).toBe(2);
  expect(countNewer(shown, shown)).toBe(0);
  expect(countNewer(shown, null)).toBe(0);
  expect(countNewer(page(), page("1"))).toBe(1);
  expect(countNewer(null, page("1"))).toBe(0);
});
