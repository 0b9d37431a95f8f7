import { expect, test } from "vitest";
import { actorOf, changesOf } from "../src/features/audit/audit";
import type { SecurityEntry } from "../src/generated/api";

const ENTRY: SecurityEntry = {
  id: "1",
  at: "2026-01-01T00:00:00Z",
  action: "PATCH /api/settings/discovery",
  outcome: "done",
  address: "10.0.0.1",
  principal_id: "token:5dcd",
  principal_name: "ada",
  kind: "token",
  target: "settings/discovery",
  reason: null,
  before: { ami_filter: "CML*", enabled: "true" },
  after: { ami_filter: "CML-2*", regions: "[]" },
};

test("a change is shown with what was there before", () => {
  expect(changesOf(ENTRY)).toEqual(["ami_filter: CML* → CML-2*", "enabled: was true", "regions: []"]);
});

test("an actor is known by its id, however it is named", () => {
  expect(actorOf(ENTRY)).toBe("ada (token:5dcd)");
  expect(actorOf({ ...ENTRY, principal_id: null, principal_name: null })).toBe("unknown");
});
