import { beforeEach, describe, expect, test } from "vitest";
import { sendAll } from "../src/app/several";
import {
  canExtend,
  choicesOf,
  countdown,
  countTiles,
  endingFirst,
  endingText,
  endSummary,
  endsSoon,
  exceedsDefinition,
  extendedEnd,
  type Filter,
  filterOf,
  inOrder,
  isShown,
  NO_FILTER,
  queryOf,
  reasonOf,
  sessionInfo,
  slotProgress,
  stripOf,
  warningOf,
} from "../src/features/lablets/model";
import {
  formatSlot,
  formatTimes,
  fromLocalInput,
  minutesOf,
  nextHalfHour,
  toLocalInput,
} from "../src/features/lablets/slot";
import {
  applySessions,
  changeNumber,
  clearSessions,
  filter,
  replaceSessions,
  rows,
  selectedSessions,
  selectListed,
  sessions,
} from "../src/features/lablets/store";
import type { LabletSessionView, SessionStatus } from "../src/generated/api";
import { SESSION_STATUSES } from "../src/generated/rules";
import { lablet, slot } from "./examples";

const NOW = Date.parse("2026-03-02T10:00:00Z");
const NINE_TO_ELEVEN = slot("2026-03-02T09:00:00Z", "2026-03-02T11:00:00Z");

function at(minutes: number): string {
  return new Date(NOW + minutes * 60_000).toISOString();
}

describe("a session in the list", () => {
  test("every status has a label, a color and a place in the strip", () => {
    for (const status of SESSION_STATUSES) {
      const { label, color, meaning } = sessionInfo(status);
      expect([label, color, meaning].every((text) => text !== "")).toBe(true);
      expect(stripOf(lablet({ status }), []).some(({ is }) => is === "present")).toBe(true);
    }
  });

  test("a status of a newer server is shown by its name", () => {
    expect(sessionInfo("suspended" as SessionStatus).label).toBe("suspended");
  });

  test("one that waits says why in the scheduler's words", () => {
    const waits_for = { code: "no_room", text: "No worker has 16 GB free.", since: at(-5) } as const;
    expect(reasonOf(lablet({ status: "pending_scheduling", waits_for }))).toBe("No worker has 16 GB free.");
  });

  test("one that failed says why, one that runs needs no words", () => {
    expect(reasonOf(lablet({ status: "failed", status_reason: "no template fits" }))).toBe("no template fits");
    expect(reasonOf(lablet({ status_reason: "the session began" }))).toBe("");
  });

  test("one whose end is requested says by whom", () => {
    const ending = lablet({ desired_status: "terminated", end_asked_by: "grace" });
    expect(reasonOf(ending)).toBe("Its end was requested by grace.");
  });

  test("the time counts down to the start, then to the end", () => {
    const booked = { status: "pending", timeslot: slot(at(12), at(72)), ends_at: at(72) } as const;
    expect(countdown(lablet(booked), NOW)).toBe("starts in 12 min");
    expect(countdown(lablet({ timeslot: NINE_TO_ELEVEN, ends_at: at(60) }), NOW)).toBe("1 h left");
    expect(countdown(lablet({ ends_at: at(-1) }), NOW)).toBe("time is over");
    expect(countdown(lablet({ status: "failed", ended_at: at(-3) }), NOW)).toBe("ended 3 min ago");
  });

  test("one without a worker after its start is late", () => {
    const late = lablet({ status: "pending_scheduling", timeslot: slot(at(-7), at(60)), ends_at: at(60) });
    expect(countdown(late, NOW)).toBe("late by 7 min");
  });

  test("one that waits for the first free worker counts how long", () => {
    expect(countdown(lablet({ status: "pending_scheduling", created_at: at(-7) }), NOW)).toBe("waiting 7m");
    expect(countdown(lablet({ status: "scheduled" }), NOW)).toBe("starting");
  });

  test("a ready one whose timeslot has not begun counts down to its start", () => {
    const ready = lablet({ status: "ready", timeslot: slot(at(4), at(64)), ends_at: at(64) });
    expect(countdown(ready, NOW)).toBe("starts in 4 min");
  });
});

describe("the tiles", () => {
  test("count every session, and twice one that runs and ends soon", () => {
    const counts = countTiles(
      [
        lablet({ status: "pending" }),
        lablet({ status: "pending_scheduling" }),
        lablet({ status: "scheduled" }),
        lablet({ status: "instantiating" }),
        lablet({ status: "ready" }),
        lablet({ ends_at: at(9), ending_soon_minutes: 10 }),
        lablet({ ends_at: at(60) }),
        lablet({ status: "stopping" }),
        lablet({ status: "failed", ended_at: at(-5) }),
        lablet({ status: "failed", ended_at: at(-3 * 24 * 60) }),
        lablet({ status: "archived", ended_at: at(-5) }),
      ],
      NOW,
    );
    expect(Object.fromEntries(counts)).toEqual({
      booked: 1,
      waiting: 1,
      starting: 2,
      ready: 1,
      running: 2,
      ending: 2,
      failed: 1,
    });
  });

  test("one that waits for a worker does not end soon, however late it is", () => {
    expect(endsSoon(lablet({ status: "pending_scheduling", ends_at: at(5), ending_soon_minutes: 5 }))).toBe(false);
  });

  test("the server says when a session ends soon", () => {
    expect(endsSoon(lablet({ ends_at: at(1) }))).toBe(false);
    expect(endsSoon(lablet({ ends_at: at(60), ending_soon_minutes: 90 }))).toBe(true);
  });
});

describe("the notice of an end", () => {
  const soon = { ends_at: at(9), ending_soon_minutes: 10 } as const;

  test("names the sessions of the user that were warned, the next to end first", () => {
    const all = [
      lablet({ id: "later", ...soon }),
      lablet({ id: "next", ...soon, ends_at: at(4) }),
      lablet({ id: "not-mine", ...soon, owner_id: "grace" }),
      lablet({ id: "not-warned", ends_at: at(9) }),
      lablet({ id: "ends-already", ...soon, desired_status: "terminated" }),
    ];
    expect(endingFirst(all, "ada").map(({ id }) => id)).toEqual(["next", "later"]);
  });

  test("a later warning, and one of a later end, is another one", () => {
    const first = warningOf(lablet(soon));
    expect(warningOf(lablet({ ...soon, ending_soon_minutes: 5 }))).not.toBe(first);
    expect(warningOf(lablet({ ...soon, ends_at: at(39) }))).not.toBe(first);
    expect(warningOf(lablet({ ...soon, version: 7 }))).toBe(first);
  });

  test("counts down", () => {
    expect(endingText(lablet(soon), NOW)).toBe("Ends in 9 min");
    expect(endingText(lablet(soon), NOW + 10 * 60_000)).toBe("Its time is over");
    expect(endingText(lablet({ ...soon, status: "stopping" }), NOW)).toBe("Its lab is being removed");
  });
});

describe("the filter", () => {
  const shown = (part: Partial<Filter>, fields: Partial<LabletSessionView>) =>
    isShown({ ...NO_FILTER, ...part }, lablet(fields), "cml-01", NOW);

  test("a link leads to the same list", () => {
    const chosen: Filter = {
      show: "running",
      text: "ada & co",
      owner: "ada",
      definition: "bgp basics",
      batch: "b-1",
      sort: { column: "owner", descending: true },
    };
    expect(filterOf(new URLSearchParams(queryOf(chosen)))).toEqual(chosen);
    expect(filterOf(new URLSearchParams(queryOf({ ...NO_FILTER, show: "scheduled" }))).show).toBe("scheduled");
  });

  test("the list without a filter has a link without a query", () => {
    expect(queryOf(NO_FILTER)).toBe("");
    expect(filterOf(new URLSearchParams("show=nonsense&sort=color"))).toEqual(NO_FILTER);
  });

  test("sessions that have ended are listed only if asked for", () => {
    expect(shown({}, { status: "archived" })).toBe(false);
    expect(shown({ show: "all" }, { status: "archived" })).toBe(true);
    expect(shown({ show: "archived" }, { status: "archived" })).toBe(true);
  });

  test("the text is found in owner, definition, class, id and the name of the worker", () => {
    const batch = { id: "b-1", name: "CCNA Monday", index: 0, size: 2, is_all_or_nothing: false };
    for (const text of ["ADA", "bgp 1.0", "monday", "s-1", "cml-01"]) expect(shown({ text }, { batch })).toBe(true);
    expect(shown({ text: "ospf" }, { batch })).toBe(false);
  });

  test("owner, definition and class narrow the list", () => {
    expect(shown({ owner: "grace" }, {})).toBe(false);
    expect(shown({ definition: "bgp" }, {})).toBe(true);
    expect(shown({ batch: "b-1" }, {})).toBe(false);
  });

  test("its choices are what the known sessions have", () => {
    const known = [lablet({ owner_id: "s10" }), lablet({ owner_id: "s9" }), lablet({ owner_id: "s9" })];
    expect(choicesOf(known, "owner").map(({ value }) => value)).toEqual(["s9", "s10"]);
    expect(choicesOf(known, "batch")).toEqual([]);
  });

  test("the list is ordered by start, a class by its seats", () => {
    const batch = (index: number) => ({ id: "b", name: "", index, size: 3, is_all_or_nothing: false });
    const list = [
      lablet({ id: "c", timeslot: NINE_TO_ELEVEN, batch: batch(2) }),
      lablet({ id: "a", timeslot: NINE_TO_ELEVEN, batch: batch(0) }),
      lablet({ id: "first", timeslot: slot(at(-120), at(60)) }),
      lablet({ id: "b", timeslot: NINE_TO_ELEVEN, batch: batch(1) }),
    ];
    const ordered = (descending: boolean) =>
      inOrder(
        list,
        (session) => session,
        { column: "slot", descending },
        () => "",
      ).map(({ id }) => id);
    expect(ordered(false)).toEqual(["first", "a", "b", "c"]);
    expect(ordered(true)).toEqual(["a", "b", "c", "first"]);
  });
});

describe("requests for several sessions", () => {
  test("the summary of an end says what is deleted, released and cancelled", () => {
    const list = (["running", "ready", "scheduled", "pending"] as const).map((status) => lablet({ status }));
    expect(endSummary(list)).toBe(
      "2 labs are stopped and deleted, 1 place on a worker is released, 1 session that waits is cancelled.",
    );
  });

  test("only a booked session that goes on can be extended", () => {
    expect(canExtend(lablet())).toBe(false);
    expect(canExtend(lablet({ timeslot: NINE_TO_ELEVEN }))).toBe(true);
    expect(canExtend(lablet({ timeslot: NINE_TO_ELEVEN, desired_status: "terminated" }))).toBe(false);
  });

  test("an extension moves the end of the timeslot and is compared with the definition", () => {
    const session = lablet({ timeslot: NINE_TO_ELEVEN, max_duration_minutes: 150 });
    expect(extendedEnd(session, 30)).toBe("2026-03-02T11:30:00.000Z");
    expect(exceedsDefinition(session, 30)).toBe(false);
    expect(exceedsDefinition(session, 60)).toBe(true);
  });

  test("one that is refused does not keep the others from being requested", async () => {
    const counts: number[] = [];
    const refusals = await sendAll(
      [1, 2, 3, 4, 5, 6, 7, 8],
      (item) => (item === 3 ? Promise.reject(new Error("it has ended")) : Promise.resolve()),
      (count) => counts.push(count),
    );
    expect(refusals).toEqual([{ item: 3, message: "it has ended" }]);
    expect(counts.at(-1)).toBe(8);
  });
});

describe("the strip of states", () => {
  const entry = (to: SessionStatus, minutes: number) => ({ to, at: at(minutes) });

  test("a session without a timeslot is not booked, and what is skipped says so", () => {
    const steps = stripOf(lablet({ status: "terminated" }), [entry("pending_scheduling", 0), entry("terminated", 5)]);
    expect(steps.map(({ id, is }) => [id, is])).toEqual([
      ["waiting", "past"],
      ["starting", "skipped"],
      ["ready", "skipped"],
      ["running", "skipped"],
      ["stopping", "skipped"],
      ["ended", "present"],
    ]);
    expect(steps.at(-1)).toMatchObject({ label: "Cancelled", at: at(5) });
  });

  test("a session that is placed again begins anew", () => {
    const history = [
      entry("pending_scheduling", 0),
      entry("scheduled", 1),
      entry("ready", 2),
      entry("pending_scheduling", 9),
      entry("scheduled", 10),
    ];
    const steps = stripOf(lablet({ status: "scheduled" }), history);
    expect(steps.find(({ id }) => id === "starting")).toMatchObject({ is: "present", at: at(10) });
    expect(steps.find(({ id }) => id === "ready")).toMatchObject({ is: "future", at: null });
  });

  test("the timeslot passes from none to all of it", () => {
    expect(slotProgress(NINE_TO_ELEVEN, NOW)).toBe(0.5);
    expect(slotProgress(NINE_TO_ELEVEN, NOW - 2 * 3_600_000)).toBe(0);
    expect(slotProgress(NINE_TO_ELEVEN, NOW + 2 * 3_600_000)).toBe(1);
  });
});

describe("times of a slot", () => {
  test("are those of the zone it was booked in", () => {
    const booked = slot("2026-03-02T09:00:00Z", "2026-03-02T11:00:00Z", "Asia/Tokyo");
    expect(formatTimes(booked)).toBe("18:00–20:00");
    expect(formatSlot(booked, NOW)).toBe("Today 18:00–20:00");
  });

  test("say that the end is on the next day", () => {
    const night = slot("2026-03-02T22:00:00Z", "2026-03-03T01:00:00Z");
    expect(formatTimes(night)).toBe("22:00–01:00 +1 d");
  });

  test("of a zone that the browser does not know are in UTC", () => {
    expect(formatTimes(slot("2026-03-02T09:00:00Z", "2026-03-02T11:00:00Z", "Mars/Olympus"))).toBe("09:00–11:00");
  });

  test("what a user types names one moment, or none", () => {
    expect(fromLocalInput(toLocalInput(NOW))).toBe(NOW);
    expect(fromLocalInput("")).toBeNull();
    expect(fromLocalInput("never")).toBeNull();
  });

  test("a default starts at a half hour that is far enough ahead", () => {
    expect(nextHalfHour(NOW, 45) - NOW).toBe(60 * 60_000);
    expect(minutesOf(NINE_TO_ELEVEN)).toBe(120);
  });
});

describe("what the page knows of sessions", () => {
  beforeEach(() => {
    clearSessions();
    filter.value = NO_FILTER;
  });

  const status = (id: string) => sessions.value.get(id)?.session.value.status;

  test("an older answer does not undo a newer event", () => {
    applySessions([lablet({ id: "a", version: 5, status: "ready" })]);
    applySessions([lablet({ id: "a", version: 4, status: "scheduled" })]);
    expect(status("a")).toBe("ready");
  });

  test("a list that was requested before an event does not undo it, and drops what is gone", () => {
    applySessions([lablet({ id: "gone" }), lablet({ id: "changed", version: 1, status: "scheduled" })]);
    const requestedAt = changeNumber();
    applySessions([lablet({ id: "changed", version: 3, status: "ready" }), lablet({ id: "created-meanwhile" })]);
    replaceSessions([lablet({ id: "changed", version: 2, status: "scheduled" })], requestedAt);
    expect(status("changed")).toBe("ready");
    expect([...sessions.value.keys()].sort()).toEqual(["changed", "created-meanwhile"]);
  });

  test("a list of those that go on leaves those that have ended", () => {
    applySessions([lablet({ id: "ended", status: "archived" }), lablet({ id: "gone" })]);
    replaceSessions([lablet({ id: "a" })], changeNumber());
    expect([...sessions.value.keys()].sort()).toEqual(["a", "ended"]);
  });

  test("a change that moves no row leaves the list as it is", () => {
    applySessions([lablet({ id: "a" }), lablet({ id: "b" })]);
    const before = rows.value;
    applySessions([lablet({ id: "a", version: 2, status_reason: "the session began" })]);
    expect(rows.value).toBe(before);
  });

  test("only listed sessions are selected, and one that leaves the list is not any more", () => {
    applySessions([lablet({ id: "a" }), lablet({ id: "b" }), lablet({ id: "ended", status: "archived" })]);
    selectListed(true);
    expect(selectedSessions.value.map(({ id }) => id)).toEqual(["a", "b"]);
    applySessions([lablet({ id: "a", version: 2, status: "archived" })]);
    expect(selectedSessions.value.map(({ id }) => id)).toEqual(["b"]);
  });
});
