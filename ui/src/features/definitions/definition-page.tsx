/** The page of one version of a lablet definition: its picture, what it needs and where it can run. */

import { useAnswer } from "../../app/answer";
import * as api from "../../app/lablet-api";
import { definitionHref, newSessionHref } from "../../app/router";
import { denialFor } from "../../app/session";
import type { Fit, LabletDefinitionView, TopologyAnalysis } from "../../generated/api";
import { Copyable } from "../../kit/copyable";
import { formatCount, formatUsd } from "../../kit/format";
import { Ago } from "../../kit/time";
import { TopologyPicture } from "../topology/topology-picture";
import { capacityText, readyText, statedText } from "./definitions";

export function DefinitionPage({ id }: { id: string }) {
  const { value, problem } = useAnswer(id, () => api.getDefinition(id));
  const definition = value.value;
  return (
    <>
      <a class="back-link" href="#/definitions">
        ← Definitions
      </a>
      {definition === null ? <Missing problem={problem.value} /> : <Details definition={definition} />}
    </>
  );
}

function Missing({ problem }: { problem: string | null }) {
  if (problem === null) {
    return (
      <div class="timeline-skeleton" aria-busy="true">
        <h1 class="visually-hidden">Loading the definition</h1>
        <span class="placeholder" />
        <span class="placeholder" />
      </div>
    );
  }
  return (
    <section class="empty" role="alert">
      <h1>Definition not found</h1>
      <p>{problem}</p>
    </section>
  );
}

function Details({ definition }: { definition: LabletDefinitionView }) {
  const { value, problem } = useAnswer(definition.id, () => api.getAnalysis(definition.id));
  const analysis = value.value;
  return (
    <>
      <header class="session-head">
        <div class="session-title">
          <h1>
            {definition.name} <span class="name-version">{definition.version}</span>
          </h1>
          <p class="session-lead">
            <span>
              {definition.status} · by {definition.owner} <Ago at={definition.created_at} />
            </span>
          </p>
        </div>
        <CreateLink definition={definition} />
      </header>
      {problem.value !== null && <p role="alert">{problem}</p>}
      <div class="session-columns">
        <div>
          <section class="card" aria-label="Picture">
            <h2>Topology</h2>
            {analysis === null ? (
              <div class="topology" aria-busy="true" />
            ) : (
              <>
                <TopologyPicture topology={analysis} stateOf={null} />
                <p class="second">
                  {formatCount(analysis.nodes.length, "node")}, {formatCount(analysis.link_count, "link")}
                </p>
              </>
            )}
          </section>
          <Fits analysis={analysis} />
        </div>
        <div>
          <Needs definition={definition} analysis={analysis} />
          <Versions definition={definition} />
        </div>
      </div>
    </>
  );
}

function CreateLink({ definition }: { definition: LabletDefinitionView }) {
  const reason =
    denialFor("book") ?? (definition.status === "active" ? null : "Only active versions have new sessions.");
  if (reason !== null) {
    return (
      <button type="button" class="button" disabled title={reason}>
        New session…
      </button>
    );
  }
  return (
    <a class="button" href={newSessionHref(definition.id)}>
      New session…
    </a>
  );
}

/** Where it can run if nothing else runs there, and why not elsewhere. */
function Fits({ analysis }: { analysis: TopologyAnalysis | null }) {
  return (
    <section class="card" aria-label="Where it can run">
      <h2>Where it can run</h2>
      {analysis !== null && (
        <ul class="fits">
          {analysis.fits.map((fit) => (
            <FitItem key={`${fit.kind} ${fit.name}`} fit={fit} />
          ))}
        </ul>
      )}
    </section>
  );
}

function FitItem({ fit }: { fit: Fit }) {
  return (
    <li class="fit" data-fit={fit.name} data-possible={fit.is_possible} data-color={fit.is_possible ? "green" : "grey"}>
      <span class="dot" />
      <span class="fit-name">
        {fit.name} <span class="fact-aside">{fit.kind}</span>
      </span>
      <span class="fit-price">{fit.usd_per_hour !== null && `${formatUsd(fit.usd_per_hour)} an hour`}</span>
      <span class="fit-reason">{fit.is_possible ? "Can run it." : fit.reason}</span>
    </li>
  );
}

interface NeedsProps {
  readonly definition: LabletDefinitionView;
  readonly analysis: TopologyAnalysis | null;
}

function Needs({ definition, analysis }: NeedsProps) {
  const { demand, options } = definition;
  const stated = statedText(definition);
  return (
    <section class="card" aria-label="Needs">
      <h2>Needs</h2>
      <dl class="facts facts-plain">
        <Fact label="Computed">{capacityText(definition.computed_needs)}</Fact>
        {stated !== null && <Fact label="Stated">{stated}</Fact>}
        <Fact label="Ports">{demand.ports.map(({ name }) => name).join(", ") || "none"}</Fact>
        <Fact label="Node types">{demand.node_definitions.join(", ")}</Fact>
        {demand.images.length > 0 && <Fact label="Images">{demand.images.join(", ")}</Fact>}
        <Fact label="Longest">{formatCount(options.max_duration_minutes, "minute")}</Fact>
        {analysis !== null && <Fact label="Ready in">{readyText(analysis)}</Fact>}
        <Fact label="Login">{definition.has_access_login ? "people get one with their session" : "none"}</Fact>
      </dl>
      {analysis !== null && analysis.warnings.length > 0 && (
        <ul class="findings-list" data-color="orange">
          {analysis.warnings.map(({ text }) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Fact({ label, children }: { label: string; children: string }) {
  return (
    <div class="fact">
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Versions({ definition }: { definition: LabletDefinitionView }) {
  const { value, problem } = useAnswer(definition.name, () => api.listVersions(definition.name));
  return (
    <section class="card" aria-label="Versions">
      <h2>Versions</h2>
      {problem.value !== null && <p class="field-note">{problem}</p>}
      <ul class="versions">
        {(value.value ?? [definition]).map((version) => (
          <li key={version.id} class="version">
            {version.id === definition.id ? (
              <strong>{version.version}</strong>
            ) : (
              <a class="link-text" href={definitionHref(version.id)}>
                {version.version}
              </a>
            )}
            <span class="second">
              {version.status} · <Ago at={version.created_at} />
            </span>
          </li>
        ))}
      </ul>
      <Copyable text={definition.id} />
    </section>
  );
}
