/** Counts events about labs, and requests of the user: the list of all labs is then fetched again. */

import { signal } from "@preact/signals";

export const labChanges = signal(0);

export function labsChanged(): void {
  labChanges.value += 1;
}
