import { describe, expect, it } from "vitest";
import {
  type ApiDocument,
  exampleOf,
  groupsOf,
  limitsText,
  matching,
  operationsOf,
  type Schemas,
  schemasOf,
  typeText,
} from "../src/features/reference/openapi";

const REF = "#/components/schemas/";

const SCHEMAS: Schemas = {
  Page: {
    type: "object",
    required: ["items"],
    properties: {
      items: { type: "array", items: { $ref: `${REF}Node` } },
      next: { anyOf: [{ type: "string" }, { type: "null" }], default: null },
    },
  },
  Node: {
    type: "object",
    required: ["name", "state"],
    properties: {
      name: { type: "string", minLength: 1, maxLength: 63 },
      state: { $ref: `${REF}State` },
      children: { type: "array", items: { $ref: `${REF}Node` } },
      since: { type: "string", format: "date-time" },
      tags: { type: "object", patternProperties: { "^x": { type: "string" } } },
    },
  },
  State: { enum: ["on", "off"] },
};

const ANSWER = { description: "Success.", content: { "application/json": { schema: { $ref: `${REF}Page` } } } };

const DOCUMENT: ApiDocument = {
  info: { version: "1" },
  components: { schemas: SCHEMAS },
  paths: {
    "/nodes": {
      get: {
        operationId: "list_nodes",
        summary: "List nodes",
        tags: ["nodes"],
        "x-role": "viewer",
        security: [{ token: [] }],
        responses: { "401": { description: "No valid token." }, "200": ANSWER },
      },
      delete: {
        operationId: "remove_nodes",
        summary: "Remove all",
        description: "Nothing is kept.",
        tags: ["nodes"],
        "x-role": "admin",
        security: [{ token: [] }],
        responses: { "204": { description: "Gone." } },
      },
    },
    "/health": {
      get: { operationId: "probe", summary: "Liveness probe", tags: ["operations"], security: [], responses: {} },
    },
  },
};

const OPERATIONS = operationsOf(DOCUMENT);

describe("the operations of the document", () => {
  it("are grouped by tag, each with the role it needs", () => {
    expect(groupsOf(OPERATIONS).map(({ tag, operations }) => [tag, operations.map(({ access }) => access)])).toEqual([
      ["nodes", ["viewer", "admin"]],
      ["operations", ["anyone"]],
    ]);
  });

  it("are found by words of their method, path, summary, description or role, in any order", () => {
    const found = (text: string) => matching(OPERATIONS, text).map(({ id }) => id);
    expect(found("")).toEqual(["list_nodes", "remove_nodes", "probe"]);
    expect(found("NODES delete")).toEqual(["remove_nodes"]);
    expect(found("kept")).toEqual(["remove_nodes"]);
    expect(found("viewer")).toEqual(["list_nodes"]);
    expect(found("nodes nowhere")).toEqual([]);
  });

  it("list what they answer by status, success first", () => {
    expect(OPERATIONS[0]?.responses.map(({ status }) => status)).toEqual(["200", "401"]);
  });
});

describe("a schema", () => {
  it("is written as a type", () => {
    expect(typeText({ $ref: `${REF}Page` })).toBe("Page");
    expect(typeText({ anyOf: [{ type: "integer" }, { type: "null" }] })).toBe("integer | null");
    expect(typeText({ type: "array", items: { enum: ["a", "b"] } })).toBe('("a" | "b")[]');
    expect(typeText({ type: "object", additionalProperties: { type: "number" } })).toBe("map of number");
    expect(typeText({})).toBe("any");
  });

  it("says its limits and what is taken if it is left out", () => {
    expect(limitsText({ type: "integer", minimum: 1, maximum: 500, default: 100 })).toBe("1 to 500, default 100");
    expect(limitsText({ anyOf: [{ type: "string", maxLength: 63 }, { type: "null" }], default: null })).toBe(
      "at most 63 characters",
    );
  });

  it("is made of others, each of which is shown once, even where they refer to themselves", () => {
    expect(schemasOf({ $ref: `${REF}Page` }, SCHEMAS).map(({ name }) => name)).toEqual(["Page", "Node", "State"]);
  });
});

describe("an example", () => {
  it("of an answer has every field, and ends where a schema contains itself", () => {
    const node = { name: "text", state: "on", since: "2026-01-31T09:00:00Z", tags: {} };
    expect(exampleOf({ $ref: `${REF}Page` }, SCHEMAS, false)).toEqual({
      items: [{ ...node, children: [{}] }],
      next: "text",
    });
  });

  it("of a request has what is required", () => {
    expect(exampleOf({ $ref: `${REF}Node` }, SCHEMAS, true)).toEqual({ name: "text", state: "on" });
  });

  it("is the author's where there is one", () => {
    expect(exampleOf({ examples: [{ name: "networking-101" }], type: "object" }, SCHEMAS, true)).toEqual({
      name: "networking-101",
    });
  });
});
