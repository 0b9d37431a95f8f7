/** The notice, on every page, that sessions of the user end soon. It lies over the page and moves nothing. */

import { computed, signal } from "@preact/signals";
import { openSessionsDialog } from "../../app/commands";
import { me } from "../../app/people";
import { openSessionId, sessionHref } from "../../app/router";
import type { LabletSessionView } from "../../generated/api";
import { Glyph } from "../../kit/icons";
import { canExtend, endingFirst, warningOf } from "./model";
import { Ending } from "./session-badge";
import { allSessions } from "./store";

/** The warnings that the user has dismissed; the next one of the same session is a new one. */
const dismissed = signal<ReadonlySet<string>>(new Set());

/** The page of a session has its own notice. */
const warned = computed(() =>
  endingFirst(allSessions.value, me.value?.id ?? "").filter(
    (session) => session.id !== openSessionId.value && !dismissed.value.has(warningOf(session)),
  ),
);

export function EndingNotice() {
  const ending = warned.value;
  const [first] = ending;
  if (first === undefined) return null;
  const extendable = ending.filter(canExtend).map(({ id }) => id);
  return (
    <div class="toast toast-ending" role="status" data-color="purple">
      <Glyph name="pausing" />
      <div class="toast-text">
        <strong>
          <Ending session={first} />
        </strong>
        <p>
          <Names first={first} others={ending.length - 1} />
        </p>
        {extendable.length > 0 && (
          <button
            type="button"
            class="button button-small"
            onClick={() => openSessionsDialog("extend-sessions", extendable)}
          >
            Extend…
          </button>
        )}
      </div>
      <button type="button" class="icon-button" aria-label="Dismiss" onClick={() => dismiss(ending)}>
        <Glyph name="close" />
      </button>
    </div>
  );
}

function Names({ first, others }: { first: LabletSessionView; others: number }) {
  return (
    <>
      Your session{" "}
      <a class="link-text" href={sessionHref(first.id)}>
        {first.definition_name}
      </a>
      {others > 0 && ` and ${others} more`}: save what you need
      {first.timeslot === null && ", it has no timeslot to extend"}.
    </>
  );
}

function dismiss(ending: readonly LabletSessionView[]): void {
  dismissed.value = new Set([...dismissed.peek(), ...ending.map(warningOf)]);
}
