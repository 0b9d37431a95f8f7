/** The reference of the API, from the OpenAPI document that this control plane serves. */

import { useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useAnswer } from "../../app/answer";
import { request } from "../../app/api";
import { query, replaceQuery } from "../../app/router";
import type { Color } from "../../generated/rules";
import { formatCount } from "../../kit/format";
import { Loading } from "../../kit/loading";
import {
  type ApiDocument,
  exampleOf,
  groupsOf,
  limitsText,
  type Message,
  matching,
  type NamedSchema,
  type Operation,
  operationsOf,
  type Parameter,
  type Response,
  type Schemas,
  schemasOf,
  typeText,
} from "./openapi";

const DOCUMENT = "/api/openapi.json";

const METHOD_COLOR: Readonly<Record<string, Color>> = {
  GET: "blue",
  POST: "green",
  PUT: "orange",
  PATCH: "orange",
  DELETE: "red",
};

export function ApiPage() {
  const { value, problem } = useAnswer("api", () => request<ApiDocument>("GET", DOCUMENT));
  const answer = value.value;
  return (
    <>
      <div class="page-head">
        <h1>API</h1>
        <a class="button" href={DOCUMENT} download="lcm-openapi.json" title="The document, for generators of clients">
          OpenAPI
        </a>
      </div>
      <p class="page-lead">What people and scripts can ask of this LCM. Errors are problem documents (RFC 9457).</p>
      {problem.value !== null && <p role="alert">{problem.value}</p>}
      {answer === null ? problem.value === null && <Loading /> : <Reference document={answer} />}
    </>
  );
}

function Reference({ document }: { document: ApiDocument }) {
  const found = useComputed(() => matching(operationsOf(document), query.value.get("q") ?? ""));
  const open = query.value.get("operation");
  return (
    <>
      <div class="audit-filter">
        <input
          class="input"
          type="search"
          placeholder="create worker"
          aria-label="Find operations"
          value={query.value.get("q") ?? ""}
          onInput={({ currentTarget }) => show({ q: currentTarget.value, operation: open })}
        />
        <span class="operations-count" role="status">
          {formatCount(found.value.length, "operation")}
        </span>
      </div>
      {groupsOf(found.value).map(({ tag, operations }) => (
        <section key={tag} class="settings-part operations" aria-label={tag}>
          <h2>{tag}</h2>
          <ul class="audit">
            {operations.map((operation) => (
              <Entry
                key={operation.id}
                operation={operation}
                schemas={document.components.schemas}
                isOpen={operation.id === open}
              />
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}

/** Show what was found and the open operation in the URL: a link leads to both. */
function show(chosen: Readonly<Record<"q" | "operation", string | null>>): void {
  const shown = new URLSearchParams();
  for (const [name, value] of Object.entries(chosen)) if (value) shown.set(name, value);
  replaceQuery(shown.toString());
}

interface EntryProps {
  readonly operation: Operation;
  readonly schemas: Schemas;
  readonly isOpen: boolean;
}

function Entry({ operation, schemas, isOpen }: EntryProps) {
  const { id, method, path, summary, access } = operation;
  return (
    <li class="operation" data-operation={id}>
      <h3>
        <button
          type="button"
          class="operation-head"
          aria-expanded={isOpen}
          onClick={() => show({ q: query.peek().get("q"), operation: isOpen ? null : id })}
        >
          <span class="method" data-color={METHOD_COLOR[method] ?? "grey"}>
            {method}
          </span>
          <span class="operation-path mono">{path}</span>
          <span class="operation-summary">{summary}</span>
          <span class="role">{access}</span>
        </button>
      </h3>
      {isOpen && <Details operation={operation} schemas={schemas} />}
    </li>
  );
}

function Details({ operation, schemas }: Omit<EntryProps, "isOpen">) {
  const { id, description, access, parameters, body, responses } = operation;
  return (
    <div class="operation-body">
      <Prose text={description} />
      <p class="field-note">
        <span class="mono">{id}</span> · access: {access}
      </p>
      {parameters.length > 0 && <Parameters parameters={parameters} />}
      {body.map((message) => (
        <Part key={message.mediaType} title="Request">
          <Body message={message} schemas={schemas} isRequest={true} />
        </Part>
      ))}
      <Part title="Responses">
        {responses.map((response) => (
          <ResponseView key={response.status} response={response} schemas={schemas} />
        ))}
      </Part>
    </div>
  );
}

function Part({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section aria-label={title}>
      <h4>{title}</h4>
      {children}
    </section>
  );
}

/** Paragraphs with `code`. */
function Prose({ text }: { text: string }) {
  return (
    <>
      {text
        .split("\n\n")
        .filter(Boolean)
        .map((paragraph) => (
          <p key={paragraph}>
            <Coded text={paragraph} />
          </p>
        ))}
    </>
  );
}

function Coded({ text }: { text: string }) {
  return <>{text.split("`").map((part, index) => (index % 2 === 0 ? part : <code class="mono">{part}</code>))}</>;
}

function Parameters({ parameters }: { parameters: readonly Parameter[] }) {
  return (
    <Part title="Parameters">
      <table class="fields">
        <Head />
        <tbody>
          {parameters.map((parameter) => (
            <Field
              key={`${parameter.in} ${parameter.name}`}
              name={parameter.name}
              place={parameter.in}
              isRequired={parameter.required}
              type={typeText(parameter.schema)}
              about={[parameter.description ?? "", limitsText(parameter.schema)]}
            />
          ))}
        </tbody>
      </table>
    </Part>
  );
}

function Head() {
  return (
    <thead>
      <tr>
        <th scope="col">Name</th>
        <th scope="col">Type</th>
        <th scope="col">Meaning</th>
      </tr>
    </thead>
  );
}

interface FieldProps {
  readonly name: string;
  /** Where a parameter is. */
  readonly place?: string;
  readonly isRequired: boolean;
  readonly type: string;
  readonly about: readonly string[];
}

function Field({ name, place, isRequired, type, about }: FieldProps) {
  const notes = [place ?? "", isRequired ? "required" : ""].filter(Boolean).join(", ");
  return (
    <tr>
      <th scope="row">
        <span class="mono">{name}</span>
        {notes !== "" && <span class="field-place">{notes}</span>}
      </th>
      <td class="mono">{type}</td>
      <td>
        {about.filter(Boolean).map((text) => (
          <div key={text}>
            <Coded text={text} />
          </div>
        ))}
      </td>
    </tr>
  );
}

function ResponseView({ response, schemas }: { response: Response; schemas: Schemas }) {
  const { status, description, messages } = response;
  const isSuccess = status.startsWith("2");
  return (
    <>
      <p class="response">
        <span class="method" data-color={isSuccess ? "green" : "grey"}>
          {status}
        </span>
        <span>
          <Coded text={description} />
        </span>
        <span class="response-type mono">{messages.map(messageText).join(", ")}</span>
      </p>
      {isSuccess &&
        messages.map((message) => (
          <Body key={message.mediaType} message={message} schemas={schemas} isRequest={false} />
        ))}
    </>
  );
}

function messageText({ mediaType, schema }: Message): string {
  return schema === null ? mediaType : typeText(schema);
}

interface BodyProps {
  readonly message: Message;
  readonly schemas: Schemas;
  readonly isRequest: boolean;
}

function Body({ message: { mediaType, schema }, schemas, isRequest }: BodyProps) {
  if (schema === null) return null;
  return (
    <>
      {isRequest && (
        <p class="field-note mono">
          {typeText(schema)}, {mediaType}
        </p>
      )}
      {schemasOf(schema, schemas).map((named) => (
        <SchemaTable key={named.name} named={named} />
      ))}
      {mediaType === "application/json" && (
        <figure class="example">
          <figcaption class="field-note">Example</figcaption>
          <pre class="mono">{JSON.stringify(exampleOf(schema, schemas, isRequest), null, 2)}</pre>
        </figure>
      )}
    </>
  );
}

function SchemaTable({ named: { name, schema } }: { named: NamedSchema }) {
  const fields = Object.entries(schema.properties ?? {});
  return (
    <details class="schema">
      <summary>
        <span class="mono">{name}</span>
      </summary>
      <Prose text={schema.description ?? ""} />
      {fields.length === 0 ? (
        <p class="mono">{typeText(schema)}</p>
      ) : (
        <table class="fields">
          <Head />
          <tbody>
            {fields.map(([field, inner]) => (
              <Field
                key={field}
                name={field}
                isRequired={schema.required?.includes(field) === true}
                type={typeText(inner)}
                about={[inner.description ?? "", limitsText(inner)]}
              />
            ))}
          </tbody>
        </table>
      )}
    </details>
  );
}
