/**
 * How every seat of a class reaches its lab, to be printed or handed out as a file. It is a picture of one moment:
 * what arrives later moves no row, and is shown on request.
 */

import { useComputed, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useAnswer } from "../../app/answer";
import * as api from "../../app/lablet-api";
import { ownerName } from "../../app/people";
import { sessionHref, sessionsHref } from "../../app/router";
import type { BatchAccess, SeatAccess, SessionAccess } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatMoment } from "../../kit/format";
import { addressOf, loginsOf } from "./access";
import { countReady, seatsOf } from "./class-sheet";
import { SessionBadge, SlotText, Zone } from "./session-badge";
import { allSessions } from "./store";

export function ClassSheetPage({ id }: { id: string }) {
  const refreshes = useSignal(0);
  const { value, problem } = useAnswer(`${id} ${refreshes.value}`, () => api.getClassAccess(id));
  const sheet = value.value;
  return (
    <>
      <a class="back-link" href={sessionsHref(`class=${encodeURIComponent(id)}&show=all`)}>
        ← Sessions of the class
      </a>
      {problem.value !== null && (
        <section class="notice notice-line" data-color="orange" role="alert">
          <p>The sheet could not be fetched: {problem.value}</p>
        </section>
      )}
      {sheet === null ? (
        <h1 class="visually-hidden">Access sheet</h1>
      ) : (
        <Sheet
          sheet={sheet}
          onRefresh={() => {
            refreshes.value += 1;
          }}
        />
      )}
    </>
  );
}

function Sheet({ sheet, onRefresh }: { sheet: BatchAccess; onRefresh: () => void }) {
  const areShown = useSignal(false);
  const isPrinting = useSignal(false);

  // The browser prints what is drawn: draw the passwords first.
  useLayoutEffect(() => {
    if (!isPrinting.value) return;
    window.print();
    isPrinting.value = false;
  }, [isPrinting.value]);

  return (
    <>
      <header class="session-head sheet-head">
        <div class="session-title">
          <h1>{sheet.name || "Class"}</h1>
          <p class="session-lead">
            {sheet.definition_name} {sheet.definition_version}
            {sheet.timeslot !== null && (
              <span>
                <SlotText timeslot={sheet.timeslot} /> <Zone zone={sheet.timeslot.zone} />
              </span>
            )}
          </p>
        </div>
        <div class="sheet-controls" role="group" aria-label="Controls">
          <label class="switch">
            <input
              type="checkbox"
              role="switch"
              checked={areShown.value}
              onChange={() => {
                areShown.value = !areShown.value;
              }}
            />
            Passwords
          </label>
          <a class="button" href={api.classAccessFile(sheet.id)} download>
            CSV
          </a>
          <button type="button" class="button" onClick={onRefresh}>
            Refresh
          </button>
          <button
            type="button"
            class="button button-primary"
            title="With the passwords"
            onClick={() => {
              isPrinting.value = true;
            }}
          >
            Print…
          </button>
        </div>
      </header>
      <Freshness sheet={sheet} />
      <ol class="seats card">
        {sheet.seats.map((seat) => (
          <SeatItem key={seat.seat} seat={seat} hasPasswords={areShown.value || isPrinting.value} />
        ))}
      </ol>
    </>
  );
}

/** One line, whatever it says: the seats below it stay where they are. */
function Freshness({ sheet }: { sheet: BatchAccess }) {
  const seats = useComputed(() => seatsOf(allSessions.value, sheet.id)).value;
  const fetched = useRef({ sheet, seats, at: now.peek() });
  if (fetched.current.sheet !== sheet) fetched.current = { sheet, seats, at: now.peek() };
  const hasChanged = fetched.current.seats !== seats;
  return (
    <p class="sheet-note" role="status" data-changed={hasChanged}>
      {countReady(sheet.seats)} of {sheet.seats.length} seats can be used, as of{" "}
      {formatMoment(new Date(fetched.current.at).toISOString(), now.peek())}
      {hasChanged && ". Seats have changed since: refresh the sheet"}.
    </p>
  );
}

function SeatItem({ seat, hasPasswords }: { seat: SeatAccess; hasPasswords: boolean }) {
  return (
    <li class="seat" data-seat={seat.seat}>
      <div class="seat-who">
        <span class="seat-number">{seat.seat}</span>
        <a class="link-text" href={sessionHref(seat.session_id)} title={seat.owner_id}>
          {ownerName(seat.owner_id)}
        </a>
        <SessionBadge status={seat.status} />
      </div>
      {seat.access === null ? (
        <p class="seat-note">{seat.note}</p>
      ) : (
        <SeatPorts access={seat.access} hasPasswords={hasPasswords} />
      )}
    </li>
  );
}

function SeatPorts({ access, hasPasswords }: { access: SessionAccess; hasPasswords: boolean }) {
  return (
    <div class="seat-access">
      <table class="seat-ports">
        <tbody>
          {access.ports.map((port) => (
            <tr key={port.label} data-port={port.label}>
              <th scope="row">{port.label}</th>
              <td>{port.protocol}</td>
              <td class="mono">{addressOf(port)}</td>
            </tr>
          ))}
          {loginsOf(access).map(({ username, password, labels }, _, all) => (
            <tr key={labels[0]}>
              <th scope="row">{all.length === 1 ? "Login" : `Login of ${labels.join(", ")}`}</th>
              <td colSpan={2} class="mono">
                {username}
                {password !== null && ` / ${hasPasswords ? password : "••••••••"}`}
              </td>
            </tr>
          ))}
          <tr>
            <th scope="row">Lab in CML</th>
            <td colSpan={2}>
              <a class="link-text" href={access.lab_url} target="_blank" rel="noreferrer">
                {access.lab_url}
              </a>
            </td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}
