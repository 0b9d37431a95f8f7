/** How people reach the lab. What arrives live is above nothing that can be pressed here. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { ApiError, messageOf } from "../../app/api";
import * as api from "../../app/lablet-api";
import { entries } from "../../app/store";
import type { LabletSessionView, PortAccess, SessionAccess } from "../../generated/api";
import { Copyable, CopyButton } from "../../kit/copyable";
import { formatExact } from "../../kit/format";
import { Glyph } from "../../kit/icons";
import { Secret } from "../../kit/secret";
import { accessKey, addressOf, type Login, loginsOf, noAccessReason, refusedPorts } from "./access";
import { Zone } from "./session-badge";
import { formatTime, LOCAL_ZONE } from "./slot";

export function AccessCard({ session }: { session: LabletSessionView }) {
  const worker = entries.value.get(session.worker_id ?? "")?.worker.value;
  const key = accessKey(session, worker);
  const { access, problem, fetchAgain } = useAccess(session.id, key);
  const reason = noAccessReason(session);
  if (key === null)
    return reason === null ? null : (
      <Card>
        <p class="field-note">{reason}</p>
      </Card>
    );
  if (access !== null) return <Ready access={access} zone={session.timeslot?.zone ?? LOCAL_ZONE} />;
  if (problem === null)
    return (
      <Card>
        <p class="field-note">Loading…</p>
      </Card>
    );
  return (
    <Card>
      <div class="access-refused" role="status">
        <p>{problem}</p>
        <button type="button" class="button button-small" onClick={fetchAgain}>
          Try again
        </button>
      </div>
    </Card>
  );
}

/** Fetch at once, and again when the key changes. An answer is dropped when the lab is refused or the page left. */
function useAccess(id: string, key: string | null) {
  const access = useSignal<SessionAccess | null>(null);
  const problem = useSignal<string | null>(null);
  const tries = useSignal(0);
  useEffect(() => {
    let isCurrent = true;
    if (key === null) access.value = null;
    else {
      api.getAccess(id).then(
        (answer) => {
          if (!isCurrent) return;
          access.value = answer;
          problem.value = null;
        },
        (error: unknown) => {
          if (!isCurrent) return;
          if (isRefusal(error)) access.value = null;
          problem.value = sentenceOf(error);
        },
      );
    }
    return () => {
      isCurrent = false;
    };
  }, [key, tries.value]);
  const fetchAgain = () => {
    tries.value += 1;
  };
  return { access: access.value, problem: problem.value, fetchAgain };
}

/** The server has judged; a network that fails has not. */
function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500;
}

function sentenceOf(error: unknown): string {
  const message = messageOf(error);
  const sentence = message.charAt(0).toUpperCase() + message.slice(1);
  return error instanceof ApiError && error.kind === "not-ready-yet" ? `Not ready yet. ${sentence}.` : sentence;
}

function Card({ children }: { children: ComponentChildren }) {
  return (
    <section class="card access-card" aria-label="Access">
      <h2>Access</h2>
      {children}
    </section>
  );
}

function Ready({ access, zone }: { access: SessionAccess; zone: string }) {
  const { ports, lab_url, valid_until } = access;
  const refused = refusedPorts(access);
  return (
    <section class="card access-card" aria-label="Access">
      <div class="card-head">
        <h2>
          Access{" "}
          {valid_until !== null && (
            <span class="count">
              until{" "}
              <time dateTime={valid_until} title={formatExact(valid_until)}>
                {formatTime(valid_until, zone)}
              </time>{" "}
              <Zone zone={zone} />
            </span>
          )}
        </h2>
        <a class="button button-small" href={lab_url} target="_blank" rel="noreferrer">
          Open the lab in CML <Glyph name="external" />
        </a>
      </div>
      {loginsOf(access).map((login, _, all) => (
        <LoginLine key={login.username} login={login} isOnly={all.length === 1} />
      ))}
      {ports.length === 0 ? (
        <p class="field-note">None of its nodes has a port for people: open their consoles in CML.</p>
      ) : (
        <ul class="ports" aria-label="Ports">
          {ports.map((port) => (
            <PortItem key={port.label} port={port} />
          ))}
        </ul>
      )}
      {refused.length > 0 && (
        <p class="field-note">
          Refused a connection before the session was ready: {refused.join(", ")}. Use the consoles in CML, and notify
          an operator.
        </p>
      )}
    </section>
  );
}

function LoginLine({ login, isOnly }: { login: Login; isOnly: boolean }) {
  const { username, password, labels } = login;
  const suffix = isOnly ? "" : ` of ${labels.join(", ")}`;
  return (
    <dl class="login">
      <div>
        <dt>User name{suffix}</dt>
        <dd>
          <span class="mono">{username}</span>
          <CopyButton name={`user name${suffix}`} text={username} />
        </dd>
      </div>
      {password !== null && (
        <div>
          <dt>Password{suffix}</dt>
          <dd>
            <Secret name={`password${suffix}`} text={password} />
          </dd>
        </div>
      )}
    </dl>
  );
}

function PortItem({ port }: { port: PortAccess }) {
  const { label, protocol, uri } = port;
  return (
    <li class="port" data-port={label}>
      <span class="port-label">{label}</span>
      <span class="port-protocol">{protocol}</span>
      <span class="port-address">
        <Copyable text={addressOf(port)} />
      </span>
      {uri !== null && (
        <a class="port-link link-text" href={uri} target="_blank" rel="noreferrer" aria-label={`Open ${label}`}>
          Open
        </a>
      )}
    </li>
  );
}
