/** Who is signed in, and what people are called. */

import { signal } from "@preact/signals";

interface Person {
  /** The owner of the lablet sessions that this user creates. */
  readonly id: string;
  readonly actor: string;
}

export const me = signal<Person | null>(null);

/** An owner's name: that of the user if it is the user, otherwise the id is all that is known. */
export function ownerName(id: string): string {
  return me.value?.id === id ? me.value.actor : id;
}
