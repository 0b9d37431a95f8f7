/** Paste or choose a topology: it is analysed while it is edited, and becomes a definition. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ApiError, messageOf } from "../../app/api";
import { closeDialog } from "../../app/commands";
import { FormDialog } from "../../app/form-dialog";
import * as api from "../../app/lablet-api";
import type { Capacity, TopologyAnalysis } from "../../generated/api";
import { MAX_TOPOLOGY_BYTES } from "../../generated/rules";
import { formatCount } from "../../kit/format";
import { AttemptKeys, type Mistake, mistakesOf } from "./booking";
import { addDefinition, createdDefinitionId } from "./definitions";
import { Latest } from "./latest";

const PAUSE_MS = 400;

interface Analysis {
  readonly found: TopologyAnalysis | null;
  readonly mistakes: readonly Mistake[];
  readonly isBusy: boolean;
}

const NOT_ANALYSED: Analysis = { found: null, mistakes: [], isBusy: false };

function mistakesIn(error: unknown): readonly Mistake[] {
  const isTopology = error instanceof ApiError && error.kind === "invalid-topology";
  return isTopology ? mistakesOf(error.message) : [{ line: null, text: messageOf(error) }];
}

function useAnalysis(yaml: Signal<string>): Signal<Analysis> {
  const analysis = useSignal<Analysis>(NOT_ANALYSED);
  const latest = useMemo(
    () =>
      new Latest<string, TopologyAnalysis>(
        (labYaml, signal) => api.analyseTopology(labYaml, { signal }),
        (found) => {
          analysis.value = { found, mistakes: [], isBusy: false };
        },
        (error) => {
          analysis.value = { found: null, mistakes: mistakesIn(error), isBusy: false };
        },
      ),
    [],
  );
  const text = yaml.value;
  useEffect(() => {
    if (text.trim() === "") {
      latest.cancel();
      analysis.value = NOT_ANALYSED;
    } else if (new TextEncoder().encode(text).length > MAX_TOPOLOGY_BYTES) {
      latest.cancel();
      analysis.value = {
        ...NOT_ANALYSED,
        mistakes: [{ line: null, text: "Larger than 1 MiB: shorten configurations." }],
      };
    } else {
      analysis.value = { ...analysis.peek(), isBusy: true };
      latest.request(text, PAUSE_MS);
    }
  }, [text]);
  useEffect(() => () => latest.cancel(), []);
  return analysis;
}

export function AddDefinitionDialog() {
  const yaml = useSignal("");
  const name = useSignal("");
  const minutes = useSignal("60");
  const stated = useSignal<Partial<Capacity>>({});
  const problem = useSignal<string | null>(null);
  const isBusy = useSignal(false);
  const keys = useMemo(() => new AttemptKeys(), []);
  const analysis = useAnalysis(yaml);
  const { found, mistakes } = analysis.value;
  const mustState = (found?.unknown_definitions.length ?? 0) > 0;

  async function submit(): Promise<void> {
    problem.value = problemOf();
    if (problem.value !== null) return;
    isBusy.value = true;
    const needs = found === null ? null : { ...found.needs, ...stated.peek() };
    const body = {
      name: name.peek().trim(),
      lab_yaml: yaml.peek(),
      options: {
        max_duration_minutes: Number(minutes.peek()),
        ...(mustState && needs !== null ? { stated_needs: needs } : {}),
      },
    };
    try {
      const created = await api.createDefinition(body, { idempotencyKey: keys.keyFor(body) });
      addDefinition(created);
      createdDefinitionId.value = created.id;
      closeDialog();
    } catch (error) {
      problem.value = mistakesIn(error)
        .map(({ line, text }) => (line === null ? text : `Line ${line}: ${text}`))
        .join(" ");
    } finally {
      isBusy.value = false;
    }
  }

  function problemOf(): string | null {
    if (yaml.peek().trim() === "") return "Paste a topology or choose its file.";
    if (name.peek().trim() === "") return "Enter a name.";
    if (!/^\d+$/.test(minutes.peek())) return "Enter the longest duration in minutes.";
    return mistakes.length > 0 ? "Correct the topology first." : null;
  }

  return (
    <FormDialog
      title="Add a lablet definition"
      isWide
      submitLabel="Create definition"
      isBusy={isBusy}
      problem={problem}
      onSubmit={() => void submit()}
    >
      <TopologyField yaml={yaml} name={name} />
      <Findings analysis={analysis.value} />
      {mustState && found !== null && <StatedNeeds needs={found.needs} stated={stated} />}
      <div class="more-fields">
        <div class="field">
          <label for="definition-name">Name</label>
          <input
            id="definition-name"
            class="input"
            autocomplete="off"
            spellcheck={false}
            maxLength={100}
            value={name.value}
            onInput={(event) => {
              name.value = event.currentTarget.value;
            }}
          />
        </div>
        <div class="field">
          <label for="definition-minutes">Longest duration, minutes</label>
          <input
            id="definition-minutes"
            class="input"
            type="number"
            min={1}
            max={480}
            value={minutes.value}
            onInput={(event) => {
              minutes.value = event.currentTarget.value;
            }}
          />
        </div>
      </div>
    </FormDialog>
  );
}

function TopologyField({ yaml, name }: { yaml: Signal<string>; name: Signal<string> }) {
  async function read(file: File | undefined): Promise<void> {
    if (file === undefined) return;
    yaml.value = await file.text();
    if (name.peek() === "") name.value = nameOfFile(file.name);
  }
  return (
    <div class="field">
      <label for="topology">Topology</label>
      <textarea
        id="topology"
        class="input textarea mono"
        rows={8}
        autofocus
        spellcheck={false}
        placeholder="The YAML that CML exports"
        aria-describedby="topology-findings"
        value={yaml.value}
        onInput={(event) => {
          yaml.value = event.currentTarget.value;
        }}
      />
      <input
        type="file"
        class="file"
        accept=".yaml,.yml,text/yaml"
        aria-label="File of the topology"
        onChange={(event) => void read(event.currentTarget.files?.[0])}
      />
    </div>
  );
}

function nameOfFile(file: string): string {
  return file
    .replace(/\.ya?ml$/i, "")
    .replace(/[^A-Za-z0-9._-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, 100);
}

function Findings({ analysis: { found, mistakes, isBusy } }: { analysis: Analysis }) {
  return (
    <div id="topology-findings" class="findings" data-testid="analysis" aria-live="polite" aria-busy={isBusy}>
      {mistakes.length > 0 && (
        <ul class="findings-list" data-color="red">
          {mistakes.map(({ line, text }) => (
            <Finding key={`${line} ${text}`} line={line} text={text} />
          ))}
        </ul>
      )}
      {found !== null && mistakes.length === 0 && <Found found={found} />}
      {found === null && mistakes.length === 0 && (
        <p class="field-note">{isBusy ? "Analysing…" : "What the lab needs is computed from its topology."}</p>
      )}
    </div>
  );
}

function Found({ found }: { found: TopologyAnalysis }) {
  const { needs, nodes, ports, warnings, fits } = found;
  const possible = fits.filter((fit) => fit.is_possible);
  return (
    <>
      <p class="findings-needs">
        <strong>{found.title || "Untitled lab"}</strong>: {needs.cpu} CPU, {needs.memory_gb} GB memory,{" "}
        {needs.storage_gb} GB disk, {formatCount(nodes.length, "node")}, {formatCount(found.link_count, "link")},{" "}
        {formatCount(ports.length, "port")}
      </p>
      {ports.length > 0 && (
        <p class="findings-ports">
          {ports.map(({ name }) => (
            <span key={name} class="tag">
              {name}
            </span>
          ))}
        </p>
      )}
      <p class="field-note" data-error={possible.length === 0}>
        {possible.length === 0
          ? "No worker and no template can run it."
          : `Runs on ${possible
              .map(({ name }) => name)
              .slice(0, 6)
              .join(", ")}${possible.length > 6 ? " and others" : ""}.`}
      </p>
      {warnings.length > 0 && (
        <ul class="findings-list" data-color="orange" aria-label="Warnings">
          {warnings.map(({ line, text }) => (
            <Finding key={`${line} ${text}`} line={line} text={text} />
          ))}
        </ul>
      )}
    </>
  );
}

function Finding({ line, text }: Mistake) {
  return (
    <li>
      {line !== null && <span class="finding-line">line {line}</span>} {text}
    </li>
  );
}

const AMOUNTS: readonly { readonly id: keyof Capacity; readonly label: string }[] = [
  { id: "cpu", label: "CPU" },
  { id: "memory_gb", label: "Memory, GB" },
  { id: "storage_gb", label: "Disk, GB" },
  { id: "nodes", label: "Nodes" },
];

/** Where node definitions are not known the author states what the lab needs. */
function StatedNeeds({ needs, stated }: { needs: Capacity; stated: Signal<Partial<Capacity>> }) {
  return (
    <fieldset class="field">
      <legend>What the lab needs</legend>
      <div class="stated">
        {AMOUNTS.map(({ id, label }) => (
          <label key={id} class="stated-amount">
            {label}
            <input
              class="input"
              type="number"
              min={0}
              step="any"
              value={stated.value[id] ?? needs[id]}
              onInput={(event) => {
                stated.value = { ...stated.value, [id]: event.currentTarget.valueAsNumber || 0 };
              }}
            />
          </label>
        ))}
      </div>
      <p class="field-note">Some node definitions are not known: state the needs of the whole lab.</p>
    </fieldset>
  );
}
