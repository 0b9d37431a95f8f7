/** The lablet sessions of the open worker: those that it has, and those that wait for it. */

import { useEffect } from "preact/hooks";
import * as api from "../../app/lablet-api";
import { ownerName } from "../../app/people";
import { sessionHref } from "../../app/router";
import { snapshotCount } from "../../app/store";
import type { WorkerView } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatCount, formatUntil } from "../../kit/format";
import { definitionOf, shortId } from "./model";
import { Countdown, SessionBadge } from "./session-badge";
import { applySessions, sessions } from "./store";

export function WorkerSessions({ worker }: { worker: WorkerView }) {
  const placed = worker.sessions;
  const nominated = Object.entries(worker.nominations);
  const unknown = [...placed, ...nominated.map(([id]) => id)].filter((id) => !sessions.value.has(id)).join();
  useEffect(() => fetchSessions(worker.id, unknown.split(",")), [worker.id, unknown, snapshotCount.value]);
  if (placed.length + nominated.length === 0) return null;
  return (
    <section class="panel-section" aria-label="Sessions">
      <h3>
        Sessions <span class="count">{placed.length}</span>
        {worker.ports.length > 0 && (
          <span class="count ports-used" title={worker.ports.join(", ")}>
            {formatCount(worker.ports.length, "port")} used
          </span>
        )}
      </h3>
      <ul class="worker-sessions">
        {placed.map((id) => (
          <Placed key={id} id={id} />
        ))}
        {nominated.map(([id, readyAt]) => (
          <Nominated key={id} id={id} readyAt={readyAt} />
        ))}
      </ul>
    </section>
  );
}

/** A nominated session is not placed on the worker: it is fetched by its id. */
function fetchSessions(workerId: string, unknown: readonly string[]): (() => void) | undefined {
  if (unknown[0] === "") return undefined;
  let isCurrent = true;
  api.listSessionsOfWorker(workerId).then(
    async (found) => {
      if (!isCurrent) return;
      applySessions(found);
      const missing = unknown.filter((id) => !sessions.peek().has(id));
      const others = await Promise.allSettled(missing.map(api.getSession));
      if (isCurrent) applySessions(others.flatMap((other) => (other.status === "fulfilled" ? [other.value] : [])));
    },
    () => undefined, // their ids are shown instead
  );
  return () => {
    isCurrent = false;
  };
}

function Placed({ id }: { id: string }) {
  const session = sessions.value.get(id)?.session.value;
  return (
    <li class="worker-session" data-session-id={id}>
      <Name id={id} />
      {session !== undefined && (
        <>
          <SessionBadge status={session.status} />
          <span class="second">
            {ownerName(session.owner_id)} · <Countdown session={session} />
          </span>
        </>
      )}
    </li>
  );
}

function Nominated({ id, readyAt }: { id: string; readyAt: string }) {
  const session = sessions.value.get(id)?.session.value;
  return (
    <li class="worker-session" data-session-id={id} data-nominated>
      <Name id={id} />
      <span class="badge" data-color="orange" data-hollow>
        <span class="dot" />
        Counts on it
      </span>
      <span class="second">
        {session !== undefined && `${ownerName(session.owner_id)} · `}
        expected {formatUntil(Date.parse(readyAt), now.peek())}
      </span>
    </li>
  );
}

function Name({ id }: { id: string }) {
  const session = sessions.value.get(id)?.session.value;
  return (
    <a class={session === undefined ? "link-text mono" : "link-text"} href={sessionHref(id)} title={id}>
      {session === undefined ? shortId(id) : definitionOf(session)}
    </a>
  );
}
