import { describe, expect, test } from "vitest";
import {
  ALL_LABS,
  adoptionOf,
  asksForTitle,
  canRequest,
  countKind,
  kindInfo,
  labFilterOf,
  labQueryOf,
  nodesText,
  noteOf,
  shownLabs,
} from "../src/features/labs/all-labs";
import type { LabRequest, LabView } from "../src/generated/api";
import { LAB_KINDS } from "../src/generated/rules";
import { definition as definitionView } from "./examples";

const NOW = Date.parse("2026-03-02T10:00:00Z");

function lab(fields: Partial<LabView> = {}): LabView {
  return {
    worker_id: "w-1",
    worker_name: "cml-01",
    lab_id: "lab-1",
    title: "BGP",
    state: "STARTED",
    kind: "foreign",
    session_id: null,
    definition_name: null,
    owner: "ada",
    node_count: 4,
    running_nodes: 4,
    tag_ports: [],
    modified_at: null,
    first_seen_at: null,
    last_seen_at: null,
    missing_since: null,
    leak: null,
    removed_from: null,
    leak_kept: "",
    request: null,
    adoption: null,
    possible_actions: ["start", "stop", "remove", "adopt"],
    ...fields,
  };
}

const REQUEST: LabRequest = {
  action: "remove",
  asked_at: "2026-03-02T09:59:00Z",
  by: "ada",
  leak: null,
  title: null,
  error: "",
  is_over: false,
};

describe("the labs on all workers", () => {
  const labs = [lab(), lab({ lab_id: "2", kind: "session" }), lab({ lab_id: "3", worker_id: "w-2" })];

  test("a link leads to the same list", () => {
    const chosen = { worker: "w 2", kind: "leaked" } as const;
    expect(labFilterOf(new URLSearchParams(labQueryOf(chosen)))).toEqual(chosen);
    expect(labFilterOf(new URLSearchParams("kind=unheard-of"))).toEqual(ALL_LABS);
    expect(labQueryOf(ALL_LABS)).toBe("");
  });

  test("are filtered by worker and kind, and counted by kind whatever kind is chosen", () => {
    expect(shownLabs(labs, { worker: "w-1", kind: "session" }).map(({ lab_id }) => lab_id)).toEqual(["2"]);
    expect(countKind(labs, { worker: "", kind: "session" }, "foreign")).toBe(2);
    expect(countKind(labs, { worker: "w-2", kind: "" }, "foreign")).toBe(1);
  });

  test("every kind has a label, a color and a meaning, and a lab of none says why", () => {
    const infos = [...LAB_KINDS, null].map(kindInfo);
    expect(infos.every((info) => info.label !== "" && info.meaning !== "")).toBe(true);
    expect(new Set(infos.map(({ color }) => color)).size).toBe(infos.length);
  });

  test("nodes that run are counted among all", () => {
    expect(nodesText(lab({ running_nodes: 3 }))).toBe("3 of 4 run");
    expect(nodesText(lab({ running_nodes: 0 }))).toBe("4");
    expect(nodesText(lab({ node_count: null, running_nodes: 0 }))).toBe("");
  });

  test("an adopted lab says who keeps it, and its removal asks for its title", () => {
    const adoption = { by: "ada", at: "2026-03-02T09:00:00Z" };
    const adopted = lab({ kind: "adopted", adoption, possible_actions: ["disown", "remove"] });
    expect(noteOf(adopted, NOW)).toBe("Adopted by ada: LCM never removes it by itself.");
    const needs = { cpu: 2, memory_gb: 4, storage_gb: 2, nodes: 2 };
    const definition = { definition_id: "d-1", name: "ccna", version: "1.2.0", needs };
    expect(noteOf(lab({ kind: "adopted", adoption: { ...adoption, definition } }), NOW)).toBe(
      "Adopted by ada as a lab of ccna 1.2.0: LCM never removes it by itself.",
    );
    expect(asksForTitle(adopted)).toBe(true);
    expect(canRequest(adopted, "disown")).toBe(true);
    expect(canRequest(adopted, "adopt")).toBe(false);
  });

  test("a lab that rests may be adopted", () => {
    expect(canRequest(lab({ running_nodes: 0 }), "adopt")).toBe(true);
  });

  test("a request says who asked, and why it is not carried out", () => {
    expect(noteOf(lab({ request: REQUEST }), NOW)).toBe("Removal requested by ada.");
    expect(noteOf(lab({ request: { ...REQUEST, error: "locked" } }), NOW)).toBe("Removal is tried again: locked");
    const over = { ...REQUEST, action: "stop", error: "no such lab", is_over: true } as const;
    expect(noteOf(lab({ request: over }), NOW)).toBe("Stop failed: no such lab");
  });

  test("a leaked lab says why it is one, and what follows", () => {
    const leaked = lab({ kind: "leaked", leak: "session_ended" });
    expect(noteOf({ ...leaked, removed_from: "2026-03-02T10:09:00Z" }, NOW)).toBe(
      "Its session has ended. LCM removes it in 9 min.",
    );
    expect(noteOf({ ...leaked, removed_from: "2026-03-02T09:59:00Z" }, NOW)).toContain("LCM removes it now.");
    expect(noteOf({ ...leaked, leak_kept: "LEAKED_LABS is set to report" }, NOW)).toContain(
      "It is kept: LEAKED_LABS is set to report.",
    );
    expect(noteOf(leaked, NOW)).toBe("Its session has ended.");
    expect(noteOf(lab(), NOW)).toBe("");
  });

  test("what would change nothing, or what the server refuses, cannot be requested", () => {
    expect(canRequest(lab(), "start")).toBe(false);
    expect(canRequest(lab({ running_nodes: 3 }), "start")).toBe(true);
    expect(canRequest(lab({ running_nodes: 0 }), "stop")).toBe(false);
    expect(canRequest(lab({ possible_actions: [] }), "remove")).toBe(false);
  });

  test("only the removal of a lab of people asks for its title", () => {
    expect(LAB_KINDS.filter((kind) => asksForTitle(lab({ kind })))).toEqual(["foreign", "adopted"]);
  });
});

test("a lab is adopted as the definition that is chosen, and as none by default", () => {
  const known = [definitionView({ id: "d-1", name: "bgp", version: "1.0.0" })];
  expect(adoptionOf(known, "")).toEqual({});
  expect(adoptionOf(known, "d-1")).toEqual({ definition: "bgp", version: "1.0.0" });
});
