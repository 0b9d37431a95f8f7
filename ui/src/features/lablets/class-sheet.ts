/** The access sheet of a class: what its rows say, and whether it is still what the server would answer. */

import type { LabletSessionView, SeatAccess } from "../../generated/api";

/** Changes whenever a seat of the class gets another session, or its session another status. */
export function seatsOf(sessions: Iterable<LabletSessionView>, batchId: string): string {
  return [...sessions]
    .filter(({ batch }) => batch?.id === batchId)
    .map(({ id, status }) => `${id} ${status}`)
    .sort()
    .join();
}

export function countReady(seats: readonly SeatAccess[]): number {
  return seats.filter(({ access }) => access !== null).length;
}
