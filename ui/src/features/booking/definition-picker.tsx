/** A list of definitions that is searched by typing; arrow keys choose, as in every group of radio buttons. */

import { useSignal } from "@preact/signals";
import type { LabletDefinitionView } from "../../generated/api";
import { Glyph } from "../../kit/icons";
import { AddDefinitionButton } from "./add-definition-button";
import { findDefinitions, needsSentence } from "./booking";
import { definitions, definitionsProblem, loadDefinitions } from "./definitions";

interface PickerProps {
  readonly chosen: string;
  readonly onChoose: (id: string) => void;
}

export function DefinitionPicker({ chosen, onChoose }: PickerProps) {
  const text = useSignal("");
  const known = definitions.value;
  return (
    <div class="picker">
      <div class="picker-head">
        <div class="filter">
          <Glyph name="search" />
          <input
            type="search"
            aria-label="Find a definition"
            placeholder="Find a definition"
            autocomplete="off"
            spellcheck={false}
            value={text.value}
            onInput={(event) => {
              text.value = event.currentTarget.value;
            }}
            onKeyDown={(event) => {
              // Enter would send the form: it takes the first one found instead.
              if (event.key !== "Enter") return;
              event.preventDefault();
              const [first] = findDefinitions(known ?? [], text.peek());
              if (first !== undefined) onChoose(first.id);
            }}
          />
        </div>
        <AddDefinitionButton />
      </div>
      <Found known={known} text={text.value} chosen={chosen} onChoose={onChoose} />
    </div>
  );
}

interface FoundProps extends PickerProps {
  readonly known: readonly LabletDefinitionView[] | null;
  readonly text: string;
}

function Found({ known, text, chosen, onChoose }: FoundProps) {
  if (known === null) return <NotLoaded />;
  const found = findDefinitions(known, text);
  if (found.length === 0) {
    return (
      <p class="picker-none">
        {known.length === 0 ? "There is no definition yet: add one from a topology." : "No definition matches."}
      </p>
    );
  }
  return (
    <div class="picker-list" role="radiogroup" aria-label="Definitions">
      {found.map((definition) => (
        <Option
          key={definition.id}
          definition={definition}
          isChosen={definition.id === chosen}
          onChoose={() => onChoose(definition.id)}
        />
      ))}
    </div>
  );
}

function NotLoaded() {
  const problem = definitionsProblem.value;
  if (problem === null) {
    return (
      <div class="picker-none" aria-busy="true">
        <span class="placeholder" />
      </div>
    );
  }
  return (
    <p class="picker-none" role="alert">
      The definitions could not be loaded: {problem}{" "}
      <button type="button" class="text-button" onClick={() => void loadDefinitions()}>
        Try again
      </button>
    </p>
  );
}

interface OptionProps {
  readonly definition: LabletDefinitionView;
  readonly isChosen: boolean;
  readonly onChoose: () => void;
}

function Option({ definition, isChosen, onChoose }: OptionProps) {
  const nameId = `definition-${definition.id}`;
  return (
    <label class="template picker-option" title={definition.options.description}>
      <input
        type="radio"
        name="definition"
        checked={isChosen}
        aria-labelledby={nameId}
        aria-describedby={`${nameId}-needs`}
        onChange={onChoose}
      />
      <span class="template-text">
        <span id={nameId} class="template-name">
          {definition.name} <span class="name-version">{definition.version}</span>
        </span>
        <span id={`${nameId}-needs`} class="template-specs">
          {needsSentence(definition)}
        </span>
      </span>
    </label>
  );
}
