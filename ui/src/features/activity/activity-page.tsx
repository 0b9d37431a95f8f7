/** The page of everything that happened in the fleet: live, and back in time. */

import * as api from "../../app/api";
import { LogList } from "../../app/log-list";
import { query, replaceQuery, sessionHref, workerHref } from "../../app/router";
import type { ActivityEntry, ActivityKind, ActivityPage as Entries } from "../../generated/api";
import { ACTIVITY_KINDS } from "../../generated/rules";
import { now } from "../../kit/clock";
import { formatMoment } from "../../kit/format";
import { Ago } from "../../kit/time";
import {
  type ActivityFilter,
  activityHref,
  boundOf,
  eventInfo,
  fieldOf,
  filterOf,
  kindLabel,
  queryOf,
} from "./activity";

export function ActivityPage() {
  const filter = filterOf(query.value);
  const text = queryOf(filter).toString();
  return (
    <>
      <div class="page-head">
        <h1>Activity</h1>
        <div class="page-actions">
          <a class="button" href={activityHref(filter, { format: "csv" })} download>
            CSV
          </a>
          <a class="button" href={activityHref(filter, { format: "ndjson" })} download>
            NDJSON
          </a>
        </div>
      </div>
      <p class="page-lead">Everything that happened, as far as your role may see it.</p>
      <Filter value={filter} onChange={(changed) => replaceQuery(queryOf(changed).toString())} />
      <LogList
        key={text}
        label="Activity"
        failure="Could not load older entries"
        load={(before) => load(filter, before)}
        empty={<Nothing isFiltered={text !== ""} />}
        render={(entry) => <Entry key={entry.id} entry={entry} />}
      />
    </>
  );
}

function load(filter: ActivityFilter, before: string | null): Promise<Entries> {
  return api.request("GET", activityHref(filter, before === null ? { limit: "50" } : { limit: "50", before }));
}

function Filter({ value, onChange }: { value: ActivityFilter; onChange: (filter: ActivityFilter) => void }) {
  return (
    <div class="audit-filter">
      <select
        class="select select-small"
        aria-label="Show kinds"
        value={value.kind ?? ""}
        onChange={({ currentTarget }) =>
          onChange({ ...value, kind: currentTarget.value === "" ? null : (currentTarget.value as ActivityKind) })
        }
      >
        <option value="">Everything</option>
        {ACTIVITY_KINDS.map((kind) => (
          <option key={kind} value={kind}>
            {kindLabel(kind)}
          </option>
        ))}
      </select>
      <input
        class="input"
        type="search"
        placeholder="Person or service"
        aria-label="Part of the name of a person or service"
        value={value.by}
        onChange={({ currentTarget }) => onChange({ ...value, by: currentTarget.value.trim() })}
      />
      <input
        class="input"
        type="search"
        placeholder="Worker, session…"
        aria-label="Part of the name of a worker, or of an id"
        value={value.about}
        onChange={({ currentTarget }) => onChange({ ...value, about: currentTarget.value.trim() })}
      />
      <Bound label="From" value={value.since} onChange={(since) => onChange({ ...value, since })} />
      <Bound label="Up to" value={value.until} onChange={(until) => onChange({ ...value, until })} />
    </div>
  );
}

/** Left, or confirmed with Enter: a browser reports every part that is typed. */
function Bound({ label, value, onChange }: { label: string; value: string; onChange: (bound: string) => void }) {
  function choose(field: string): void {
    if (field !== fieldOf(value)) onChange(boundOf(field));
  }

  return (
    <label class="audit-bound">
      {label}
      <input
        class="input"
        type="datetime-local"
        value={fieldOf(value)}
        onBlur={({ currentTarget }) => choose(currentTarget.value)}
        onKeyDown={({ key, currentTarget }) => {
          if (key === "Enter") choose(currentTarget.value);
        }}
      />
    </label>
  );
}

function Entry({ entry }: { entry: ActivityEntry }) {
  const { label, color } = eventInfo(entry);
  return (
    <li class="decision" data-kind={entry.kind} data-color={color}>
      <span class="decision-event">
        <span class="dot" />
        {label}
      </span>
      <span class="decision-reason">{entry.text}</span>
      <span class="decision-about">
        <About entry={entry} />
      </span>
      <span class="decision-when" title={formatMoment(entry.at, now.peek())}>
        <Ago at={entry.at} />
        <span>{entry.by}</span>
      </span>
    </li>
  );
}

function About({ entry: { worker_id: worker, worker_name: name, session_id: session } }: { entry: ActivityEntry }) {
  return (
    <>
      {worker !== null && (
        <a class="link-text" href={workerHref(worker)} title={worker}>
          {name ?? worker}
        </a>
      )}
      {worker !== null && session !== null && " · "}
      {session !== null && (
        <a class="link-text" href={sessionHref(session)} title={session}>
          session {session.slice(0, 8)}
        </a>
      )}
    </>
  );
}

function Nothing({ isFiltered }: { isFiltered: boolean }) {
  return (
    <section class="empty empty-small">
      <h2>{isFiltered ? "Nothing matches" : "Nothing has happened yet"}</h2>
      {isFiltered && <p>Go on with “Show older” where it is offered, or change the filter.</p>}
    </section>
  );
}
