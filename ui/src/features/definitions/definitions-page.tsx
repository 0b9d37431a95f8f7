/** The lablet definitions: the versioned templates of labs. */

import { useComputed } from "@preact/signals";
import { usePolledAnswer } from "../../app/answer";
import * as api from "../../app/lablet-api";
import { definitionHref } from "../../app/router";
import type { LabletDefinitionView } from "../../generated/api";
import { formatCount } from "../../kit/format";
import { Loading } from "../../kit/loading";
import { Ago } from "../../kit/time";
import { AddDefinitionButton } from "../booking/add-definition-button";
import { definitions as created } from "../booking/definitions";
import { capacityText, type DefinitionGroup, groupsOf } from "./definitions";

const REFRESH = { everyMs: 60_000, afterChangeMs: 0 };

export function DefinitionsPage() {
  // A definition that is created here is in the list at once.
  const changes = useComputed(() => created.value?.length ?? 0);
  const { value, problem } = usePolledAnswer("all", api.listAllDefinitions, REFRESH, changes);
  return (
    <>
      <div class="page-head">
        <h1>Definitions</h1>
        <AddDefinitionButton isPrimary />
      </div>
      <p class="page-lead">
        The labs from which sessions are made. A version never changes; a change makes the next one.
      </p>
      <List known={value.value} problem={problem.value} />
    </>
  );
}

interface ListProps {
  readonly known: readonly LabletDefinitionView[] | null;
  readonly problem: string | null;
}

function List({ known, problem }: ListProps) {
  if (known === null) {
    if (problem !== null) return <p role="alert">{problem}</p>;
    return <Loading />;
  }
  if (known.length === 0) {
    return (
      <section class="empty">
        <h2>No definitions</h2>
        <p>Add one from a topology that CML exports: what it needs is computed.</p>
      </section>
    );
  }
  return (
    <ul class="definitions" data-testid="definitions">
      {groupsOf(known).map((group) => (
        <Group key={group.name} group={group} />
      ))}
    </ul>
  );
}

function Group({ group: { name, shown, versions } }: { group: DefinitionGroup }) {
  return (
    <li class="definition" data-definition={name}>
      <h2>
        <a class="link-text" href={definitionHref(shown.id)}>
          {name}
        </a>{" "}
        <span class="name-version">{shown.version}</span>
      </h2>
      <p class="definition-needs">
        {capacityText(shown.demand.needs)}, {formatCount(shown.demand.ports.length, "port")}
      </p>
      <p class="second">
        {shown.status !== "active" && "Deprecated · "}
        {formatCount(versions.length, "version")} · by {shown.owner} <Ago at={shown.created_at} />
      </p>
    </li>
  );
}
