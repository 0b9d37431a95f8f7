import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ApiError } from "../src/app/api";
import {
  AttemptKeys,
  classBody,
  type Draft,
  findDefinitions,
  isClass,
  lastEta,
  lengthsUpTo,
  mistakesOf,
  needsSentence,
  previewOf,
  problemsOf,
  problemsOfError,
  seatsSentence,
  sessionBody,
} from "../src/features/booking/booking";
import { Latest } from "../src/features/booking/latest";
import { toLocalInput } from "../src/features/lablets/slot";
import { definition, preview, previewedSeat } from "./examples";

const START = Date.parse("2026-03-02T09:00:00Z");

function draft(fields: Partial<Draft> = {}): Draft {
  return {
    definitionId: "d-1",
    seats: "1",
    className: "",
    owners: "",
    isAllOrNothing: false,
    isBooked: false,
    start: toLocalInput(START),
    minutes: 120,
    region: "",
    reservation: "",
    ...fields,
  };
}

describe("a new session", () => {
  test("as soon as possible has no timeslot", () => {
    expect(sessionBody(draft(), "UTC")).toEqual({ definition_id: "d-1" });
    expect(previewOf(draft(), "UTC")).toMatchObject({ count: 1, timeslot: null });
  });

  test("is booked in moments, with the user's zone beside them", () => {
    const body = sessionBody(draft({ isBooked: true, region: "eu-west-1", reservation: " r-7 " }), "Europe/Berlin");
    expect(body).toEqual({
      definition_id: "d-1",
      timeslot: { start: "2026-03-02T09:00:00.000Z", end: "2026-03-02T11:00:00.000Z", zone: "Europe/Berlin" },
      aws_region: "eu-west-1",
      reservation_id: "r-7",
    });
  });

  test("is not previewed as long as something is missing", () => {
    expect(previewOf(draft({ definitionId: "" }), "UTC")).toBeNull();
    expect(previewOf(draft({ seats: "0" }), "UTC")).toBeNull();
    expect(previewOf(draft({ isBooked: true, start: "" }), "UTC")).toBeNull();
  });

  test("needs a definition, a number of seats and a time", () => {
    const wrong = problemsOf(draft({ definitionId: "", seats: "201", isBooked: true, start: "" }));
    expect([...wrong.keys()]).toEqual(["definition", "seats", "when"]);
    expect(problemsOf(draft()).size).toBe(0);
  });
});

describe("a class", () => {
  const ofThree = draft({ seats: "3", className: "CCNA", owners: "ada\ngrace,  alan\n", isAllOrNothing: true });

  test("begins with the second seat", () => {
    expect(isClass(draft())).toBe(false);
    expect(isClass(ofThree)).toBe(true);
  });

  test("has a name, and an owner for every seat or none", () => {
    expect(classBody(ofThree, "UTC")).toEqual({
      definition_id: "d-1",
      name: "CCNA",
      count: 3,
      all_or_nothing: true,
      owners: ["ada", "grace", "alan"],
    });
    expect(problemsOf(ofThree).size).toBe(0);
    expect(problemsOf(draft({ seats: "2", owners: "ada" })).get("owners")).toContain("1 owner for 2 seats");
    expect(problemsOf(draft({ seats: "2" })).has("className")).toBe(true);
  });
});

describe("an error of the API", () => {
  test("is shown at its field in the API's words", () => {
    const invalid = new ApiError(422, "correct these fields", new Map([["timeslot.start", "Expected a time"]]));
    expect(problemsOfError(invalid).fields.get("when")).toBe("Expected a time");
    const late = new ApiError(422, "the timeslot starts in the past", new Map(), "invalid-timeslot");
    expect(problemsOfError(late)).toEqual({ fields: new Map([["when", late.message]]), rest: null });
    const taken = new ApiError(409, "reservation 'r-7' has session s-1 already", new Map(), "conflict");
    expect(problemsOfError(taken).fields.get("reservation")).toBe(taken.message);
  });

  test("that belongs to no field is shown below them", () => {
    const down = new ApiError(503, "the store does not answer", new Map(), "store");
    expect(problemsOfError(down)).toEqual({ fields: new Map(), rest: "the store does not answer" });
    expect(problemsOfError(new ApiError(422, "two", new Map([["colour", "no"]]))).rest).toBe("two");
  });

  test("about a topology names each line", () => {
    expect(mistakesOf("line 3: node R1: no image; line 9: the link l1 lacks n2; add it")).toEqual([
      { line: 3, text: "node R1: no image" },
      { line: 9, text: "the link l1 lacks n2; add it" },
    ]);
    expect(mistakesOf("the topology is too large")).toEqual([{ line: null, text: "the topology is too large" }]);
  });
});

describe("the idempotency key", () => {
  test("is the same for a request that is sent again, and another for another one", () => {
    const keys = new AttemptKeys();
    const first = keys.keyFor({ count: 1 });
    expect(keys.keyFor({ count: 1 })).toBe(first);
    expect(keys.keyFor({ count: 2 })).not.toBe(first);
  });

  test("of a request that succeeded is not used again", () => {
    const keys = new AttemptKeys();
    const first = keys.keyFor({ count: 1 });
    keys.done();
    expect(keys.keyFor({ count: 1 })).not.toBe(first);
  });
});

describe("the preview", () => {
  test("says what becomes of the seats", () => {
    expect(seatsSentence(preview({ placed: 1 }))).toBe("It gets a worker at once.");
    expect(seatsSentence(preview({ waiting: 1 }))).toBe("It waits for a worker.");
    const class_ = preview({ seats: Array.from({ length: 30 }, () => previewedSeat()), placed: 24, waiting: 6 });
    expect(seatsSentence(class_)).toBe("24 of 30 seats get a worker at once, 6 wait for a worker.");
    expect(seatsSentence(preview({ impossible: 1 }))).toBe("It can never be placed.");
  });

  test("expects the class when its last seat is expected", () => {
    const eta = (likely: string) => ({ earliest: likely, likely, basis: "" });
    const seats = [
      previewedSeat({ outcome: "assign" }),
      previewedSeat({ eta: eta("2026-03-02T09:25:00Z") }),
      previewedSeat({ eta: eta("2026-03-02T09:05:00Z") }),
    ];
    expect(lastEta(preview({ seats }))).toBe("2026-03-02T09:25:00Z");
    expect(lastEta(preview({ seats: [...seats, previewedSeat()] }))).toBeNull();
  });
});

describe("definitions", () => {
  test("are found by words of their name, version and description", () => {
    const list = [definition({ name: "bgp-10" }), definition({ name: "bgp-9" }), definition({ name: "ospf" })];
    expect(findDefinitions(list, "BGP 1.0").map(({ name }) => name)).toEqual(["bgp-9", "bgp-10"]);
    expect(findDefinitions(list, "")).toHaveLength(3);
  });

  test("say what they need", () => {
    expect(needsSentence(definition())).toBe("2 CPU · 4 GB · 3 nodes · up to 1 h");
  });

  test("offer no timeslot that is longer than they allow", () => {
    expect(lengthsUpTo(100)).toEqual([15, 30, 45, 60, 90, 100]);
    expect(lengthsUpTo(5)).toEqual([5]);
  });
});

describe("only the newest request", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  interface Sent {
    readonly request: string;
    readonly signal: AbortSignal;
    readonly answer: (text: string) => void;
    readonly refuse: (error: Error) => void;
  }

  function started() {
    const sent: Sent[] = [];
    const shown: string[] = [];
    const latest = new Latest<string, string>(
      (request, signal) =>
        new Promise((answer, refuse) => {
          sent.push({ request, signal, answer, refuse });
        }),
      (answer) => shown.push(answer),
      (error) => shown.push(String(error)),
    );
    return { sent, shown, latest };
  }

  test("is sent, once the user pauses", async () => {
    const { sent, latest } = started();
    for (const text of ["a", "ab", "abc"]) {
      latest.request(text, 300);
      await vi.advanceTimersByTimeAsync(200);
    }
    expect(sent).toHaveLength(0);
    await vi.advanceTimersByTimeAsync(100);
    expect(sent.map(({ request }) => request)).toEqual(["abc"]);
  });

  test("is shown: the one before is ended, and its answer or error is dropped", async () => {
    const { sent, shown, latest } = started();
    latest.request("old", 0);
    await vi.advanceTimersByTimeAsync(0);
    latest.request("new", 0);
    await vi.advanceTimersByTimeAsync(0);
    expect(sent.map(({ signal }) => signal.aborted)).toEqual([true, false]);
    sent[1]?.answer("new answer");
    sent[0]?.refuse(new Error("aborted"));
    await vi.advanceTimersByTimeAsync(0);
    expect(shown).toEqual(["new answer"]);
  });
});
