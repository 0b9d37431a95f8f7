import { describe, expect, test } from "vitest";
import { withNewest, withOlder } from "../src/app/log-pages";
import { auditInfo } from "../src/features/scaling/scaling";
import type { AuditEntry, AuditEvent, AuditPage } from "../src/generated/api";

function entry(id: string): AuditEntry {
  return {
    id,
    at: "2026-11-16T12:00:00Z",
    event: "drained",
    by: "ada",
    reason: "",
    worker_id: null,
    template_name: null,
    aws_region: null,
  };
}

function page(letters: string, next: string | null = null): AuditPage {
  return { items: [...letters].map(entry), next };
}

function ids({ items }: AuditPage): string {
  return items.map(({ id }) => id).join("");
}

describe("the audit log", () => {
  test("newer decisions come on top of what was opened, each once", () => {
    const after = withNewest(page("dcba", "a"), page("fed", "d"));
    expect(ids(after)).toBe("fedcba");
    expect(after.next).toBe("a");
  });

  test("a page that does not reach what is known stands alone: a hole would be a lie", () => {
    const after = withNewest(page("cba"), page("zyx", "x"));
    expect(ids(after)).toBe("zyx");
    expect(after.next).toBe("x");
  });

  test("a page that is everything replaces what is known", () => {
    expect(ids(withNewest(page("cba", "a"), page("dc")))).toBe("dc");
    expect(ids(withNewest(null, page("cb", "b")))).toBe("cb");
  });

  test("older decisions are added below, each once", () => {
    const after = withOlder(page("fed", "d"), page("dcb", "b"));
    expect(ids(after)).toBe("fedcb");
    expect(after.next).toBe("b");
  });

  test("a label from a newer server is shown as it is", () => {
    expect(auditInfo("skipped_moon_phase" as AuditEvent).label).toBe("skipped_moon_phase");
  });
});
