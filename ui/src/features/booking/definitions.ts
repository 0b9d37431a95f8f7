/** The definitions that can be chosen, fetched when a page needs them. */

import { signal } from "@preact/signals";
import { messageOf } from "../../app/api";
import * as api from "../../app/lablet-api";
import type { LabletDefinitionView } from "../../generated/api";

export const definitions = signal<readonly LabletDefinitionView[] | null>(null);
export const definitionsProblem = signal<string | null>(null);

export async function loadDefinitions(): Promise<void> {
  try {
    definitions.value = await api.listDefinitions();
    definitionsProblem.value = null;
  } catch (error) {
    definitionsProblem.value = messageOf(error);
  }
}

/** A definition that was just created: it is in the list before the list is fetched again. */
export function addDefinition(definition: LabletDefinitionView): void {
  const others = (definitions.peek() ?? []).filter(({ id }) => id !== definition.id);
  definitions.value = [...others, definition];
}

/** The definition that the form takes over once it is created. */
export const createdDefinitionId = signal<string | null>(null);
