import { useComputed } from "@preact/signals";
import { openSessionsDialog } from "../../app/commands";
import { ownerName } from "../../app/people";
import { go, sessionHref, workerHref } from "../../app/router";
import type { LabletSessionView } from "../../generated/api";
import { formatExact } from "../../kit/format";
import { Glyph } from "../../kit/icons";
import { canEnd, classOf, isEnding, reasonOf, shortId, titleOf } from "./model";
import { Countdown, SessionBadge, SlotText, Zone } from "./session-badge";
import { formatMinutes } from "./slot";
import { type SessionEntry, selection, toggleSelected, workerName } from "./store";

const LINK_PREFIX = "session-";

export function sessionLinkId(id: string): string {
  return LINK_PREFIX + id;
}

export function SessionRow({ entry }: { entry: SessionEntry }) {
  const session = entry.session.value;
  const isSelected = useComputed(() => selection.value.has(entry.id));
  return (
    <div
      role="row"
      class="row row-session"
      data-session-id={session.id}
      data-status={session.status}
      data-selected={isSelected.value}
      onClick={(event) => openUnlessOnControl(event, entry.id)}
    >
      <div role="cell" class="cell cell-check">
        <label class="check">
          <input
            type="checkbox"
            aria-label={`Select ${titleOf(session)}`}
            checked={isSelected.value}
            onChange={() => toggleSelected(entry.id)}
          />
        </label>
      </div>
      <div role="cell" class="cell cell-session">
        <a id={sessionLinkId(entry.id)} class="name" href={sessionHref(entry.id)}>
          {session.definition_name} <span class="name-version">{session.definition_version}</span>
        </a>
        <span class="second" title={session.id}>
          {classOf(session) ?? <span class="mono">{shortId(session.id)}</span>}
        </span>
      </div>
      <div role="cell" class="cell cell-state">
        <StateCell session={session} />
      </div>
      <div role="cell" class="cell cell-owner">
        <span class="first" title={session.owner_id}>
          {ownerName(session.owner_id)}
        </span>
      </div>
      <div role="cell" class="cell cell-worker">
        <WorkerCell session={session} />
      </div>
      <div role="cell" class="cell cell-slot">
        <SlotCell session={session} />
      </div>
      <div role="cell" class="cell cell-left">
        <span class="first">
          <Countdown session={session} />
        </span>
      </div>
      <div role="cell" class="cell cell-actions">
        <EndButton entry={entry} />
      </div>
    </div>
  );
}

function StateCell({ session }: { session: LabletSessionView }) {
  const reason = reasonOf(session);
  return (
    <>
      <span class="status-line">
        <SessionBadge status={session.status} />
        {isEnding(session) && session.status !== "stopping" && <span class="desired">→ ends</span>}
      </span>
      {reason !== "" && (
        <span class="second reason" title={reason}>
          {reason}
        </span>
      )}
    </>
  );
}

function WorkerCell({ session }: { session: LabletSessionView }) {
  const { worker_id: placed, nominated } = session;
  if (placed !== null) return <WorkerName id={placed} />;
  if (nominated === null) return <span class="first absent">—</span>;
  return (
    <>
      <WorkerName id={nominated.worker_id} />
      <span class="second" title={`Expected ${formatExact(nominated.ready_at)}`}>
        counts on it
      </span>
    </>
  );
}

export function WorkerName({ id }: { id: string }) {
  const name = useComputed(() => workerName(id)).value;
  return (
    <a class={name === id ? "link-text first mono" : "link-text first"} href={workerHref(id)} title={id}>
      {name}
    </a>
  );
}

function SlotCell({ session }: { session: LabletSessionView }) {
  const { timeslot } = session;
  if (timeslot === null) {
    return (
      <>
        <span class="first">As soon as possible</span>
        <span class="second">for {formatMinutes(session.max_duration_minutes)}</span>
      </>
    );
  }
  return (
    <>
      <span class="first">
        <SlotText timeslot={timeslot} />
      </span>
      <span class="second">
        <Zone zone={timeslot.zone} />
      </span>
    </>
  );
}

function EndButton({ entry }: { entry: SessionEntry }) {
  const session = entry.session.value;
  if (!canEnd(session)) return null;
  const label = `End ${titleOf(session)}`;
  return (
    <button
      type="button"
      class="action"
      data-action="delete"
      aria-label={label}
      title={label}
      onClick={() => openSessionsDialog("end-sessions", [entry.id])}
    >
      <Glyph name="stop" />
      <span class="action-text">End</span>
    </button>
  );
}

function openUnlessOnControl(event: MouseEvent, id: string): void {
  const isOnControl = event
    .composedPath()
    .some((node) => node instanceof Element && node.matches("a, button, label, input"));
  const isSelectingText = window.getSelection()?.isCollapsed === false;
  if (!isOnControl && !isSelectingText) go(sessionHref(id));
}
