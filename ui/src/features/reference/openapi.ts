/** The operations of the OpenAPI document as people read them; the rules that need no browser. */

export interface Schema {
  readonly $ref?: string;
  readonly type?: string;
  readonly format?: string;
  readonly description?: string;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly prefixItems?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly patternProperties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly required?: readonly string[];
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly pattern?: string;
}

export type Schemas = Readonly<Record<string, Schema>>;

export interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required: boolean;
  readonly description?: string;
  readonly schema: Schema;
}

type Content = Readonly<Record<string, { readonly schema?: Schema }>>;

interface OperationObject {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly string[];
  readonly "x-role"?: string;
  readonly security: readonly Readonly<Record<string, unknown>>[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Content };
  readonly responses: Readonly<Record<string, { readonly description: string; readonly content?: Content }>>;
}

export interface ApiDocument {
  readonly info: { readonly version: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, OperationObject>>>>;
  readonly components: { readonly schemas: Schemas };
}

/** What is sent or answered, in one of its forms. */
export interface Message {
  readonly mediaType: string;
  readonly schema: Schema | null;
}

export interface Response {
  readonly status: string;
  readonly description: string;
  readonly messages: readonly Message[];
}

export interface Operation {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly access: string;
  readonly parameters: readonly Parameter[];
  readonly body: readonly Message[];
  readonly responses: readonly Response[];
}

export interface OperationGroup {
  readonly tag: string;
  readonly operations: readonly Operation[];
}

export function operationsOf(document: ApiDocument): readonly Operation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      id: operation.operationId,
      method: method.toUpperCase(),
      path,
      tag: operation.tags[0] ?? "other",
      summary: operation.summary,
      description: operation.description ?? "",
      access: accessOf(operation),
      parameters: operation.parameters ?? [],
      body: messagesOf(operation.requestBody?.content),
      responses: Object.entries(operation.responses)
        .map(([status, { description, content }]) => ({ status, description, messages: messagesOf(content) }))
        .sort((a, b) => Number(a.status) - Number(b.status)),
    })),
  );
}

function accessOf({ security, "x-role": role }: OperationObject): string {
  return security.length === 0 ? "anyone" : (role ?? "signed in");
}

function messagesOf(content: Content = {}): readonly Message[] {
  return Object.entries(content).map(([mediaType, { schema }]) => ({ mediaType, schema: schema ?? null }));
}

/** By tag, in the order of the document. */
export function groupsOf(operations: readonly Operation[]): readonly OperationGroup[] {
  const byTag = new Map<string, Operation[]>();
  for (const operation of operations) {
    byTag.set(operation.tag, [...(byTag.get(operation.tag) ?? []), operation]);
  }
  return [...byTag].map(([tag, found]) => ({ tag, operations: found }));
}

/** The operations that contain every word, wherever it is. */
export function matching(operations: readonly Operation[], text: string): readonly Operation[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return operations.filter(({ id, method, path, tag, summary, description, access }) => {
    const all = [id, method, path, tag, summary, description, access].join("\n").toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

const REF = "#/components/schemas/";

function nameOf({ $ref }: Schema): string | null {
  return $ref?.startsWith(REF) ? $ref.slice(REF.length) : null;
}

/** A type in the words of a programmer: "string", "WorkerView[]", "integer | null". */
export function typeText(schema: Schema): string {
  const name = nameOf(schema);
  if (name !== null) return name;
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf !== undefined) return [...new Set(schema.anyOf.map(typeText))].join(" | ");
  if (schema.prefixItems !== undefined) return `[${schema.prefixItems.map(typeText).join(", ")}]`;
  if (schema.items !== undefined) {
    const item = typeText(schema.items);
    return item.includes(" ") ? `(${item})[]` : `${item}[]`;
  }
  const values = valuesOf(schema);
  if (values !== null) return `map of ${typeText(values)}`;
  return schema.type ?? "any";
}

/** The values of an object whose names are free; null for any other schema. */
function valuesOf({ additionalProperties, patternProperties }: Schema): Schema | null {
  const [values] = Object.values(patternProperties ?? {});
  return values ?? (typeof additionalProperties === "object" ? additionalProperties : null);
}

/** What a value must be besides its type, and what it is if it is left out. */
export function limitsText(schema: Schema): string {
  const { pattern, default: usual } = schema;
  const inner = schema.anyOf?.find(({ type }) => type !== "null");
  const texts = [
    rangeText(schema.minimum, schema.maximum, ""),
    rangeText(schema.minLength, schema.maxLength, " characters"),
    rangeText(schema.minItems, schema.maxItems, " items"),
    pattern === undefined ? "" : `matches ${pattern}`,
    inner === undefined ? "" : limitsText(inner),
    usual === undefined || usual === null ? "" : `default ${JSON.stringify(usual)}`,
  ];
  return texts.filter(Boolean).join(", ");
}

function rangeText(least: number | undefined, most: number | undefined, unit: string): string {
  if (least === undefined && most === undefined) return "";
  if (least === undefined) return `at most ${most}${unit}`;
  if (most === undefined) return `at least ${least}${unit}`;
  return `${least} to ${most}${unit}`;
}

export interface NamedSchema {
  readonly name: string;
  readonly schema: Schema;
}

/** The schemas that a schema is made of, itself first if it has a name; each once, in the order of reading. */
export function schemasOf(schema: Schema, schemas: Schemas): readonly NamedSchema[] {
  const found = new Map<string, Schema>();
  collect(schema, schemas, found);
  return [...found].map(([name, named]) => ({ name, schema: named }));
}

function collect(schema: Schema, schemas: Schemas, found: Map<string, Schema>): void {
  const name = nameOf(schema);
  const named = name === null ? undefined : schemas[name];
  if (name !== null && named !== undefined && !found.has(name)) {
    found.set(name, named);
    for (const part of partsOf(named)) collect(part, schemas, found);
  }
  if (name === null) for (const part of partsOf(schema)) collect(part, schemas, found);
}

function partsOf(schema: Schema): readonly Schema[] {
  const { anyOf = [], prefixItems = [], properties = {}, items } = schema;
  const values = valuesOf(schema);
  return [...Object.values(properties), ...anyOf, ...prefixItems, items ?? [], values ?? []].flat();
}

/** An example: the author's own, else one made from the schema, of a request only with what is required. */
export function exampleOf(
  schema: Schema,
  schemas: Schemas,
  isRequest: boolean,
  within: readonly string[] = [],
): unknown {
  const [example] = schema.examples ?? [];
  if (example !== undefined) return example;
  const name = nameOf(schema);
  if (name !== null) {
    const named = schemas[name];
    return named === undefined || within.includes(name) ? {} : exampleOf(named, schemas, isRequest, [...within, name]);
  }
  if (schema.default !== undefined && schema.default !== null) return schema.default;
  if (schema.enum !== undefined) return schema.enum[0];
  const part = (inner: Schema) => exampleOf(inner, schemas, isRequest, within);
  if (schema.anyOf !== undefined) return part(schema.anyOf.find(({ type }) => type !== "null") ?? {});
  if (schema.prefixItems !== undefined) return schema.prefixItems.map(part);
  if (schema.items !== undefined) return [part(schema.items)];
  if (schema.properties !== undefined) return exampleObject(schema, isRequest, part);
  return exampleValue(schema);
}

function exampleObject(schema: Schema, isRequest: boolean, part: (inner: Schema) => unknown): unknown {
  const shown = Object.entries(schema.properties ?? {}).filter(
    ([name]) => !isRequest || schema.required?.includes(name) === true,
  );
  return Object.fromEntries(shown.map(([name, inner]) => [name, part(inner)]));
}

function exampleValue({ type, format, minimum }: Schema): unknown {
  switch (type) {
    case "string":
      return format === "date-time" ? "2026-01-31T09:00:00Z" : "text";
    case "integer":
    case "number":
      return minimum ?? 0;
    case "boolean":
      return true;
    case "null":
      return null;
    default:
      return {};
  }
}
