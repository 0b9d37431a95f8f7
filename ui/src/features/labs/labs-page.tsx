/** The labs on all workers: whose they are, and what may be requested of them. */

import { computed, effect, signal, useComputed } from "@preact/signals";
import { usePolledAnswer } from "../../app/answer";
import { openLabDialog, openSessionsDialog } from "../../app/commands";
import { type AllLabs, discoverLabs, listAllLabs, requestLab } from "../../app/lab-api";
import { page, query, replaceQuery, sessionHref, workerHref } from "../../app/router";
import { cmlPlace, denialFor } from "../../app/session";
import { sendAll } from "../../app/several";
import { applyWorkers, entries, fleetChanges } from "../../app/store";
import { showError } from "../../app/toasts";
import type { LabAction, LabKind, LabView, ListedWorker } from "../../generated/api";
import { LAB_KINDS } from "../../generated/rules";
import { formatCount } from "../../kit/format";
import { Glyph, type IconName } from "../../kit/icons";
import { useProgressiveCount } from "../../kit/progressive";
import { Ago } from "../../kit/time";
import { canEnd } from "../lablets/model";
import { minute, sessions } from "../lablets/store";
import { cmlPage } from "../worker/links";
import type { Operation } from "../worker/model";
import {
  ALL_LABS,
  canRequest,
  countKind,
  DOING,
  keyOf,
  kindInfo,
  type LabFilter,
  labFilterOf,
  labQueryOf,
  nameOf,
  nodesText,
  noteOf,
  shownLabs,
} from "./all-labs";
import { labChanges, labsChanged } from "./lab-changes";
import { labColor, stateLabel } from "./labs";

const changes = computed(() => labChanges.value + fleetChanges.value);
const INTERVAL = { everyMs: 15_000, afterChangeMs: 1_000 };

const filter = signal<LabFilter>(ALL_LABS);

effect(() => {
  if (page.value.id === "labs") filter.value = labFilterOf(query.value);
});

function choose(part: Partial<LabFilter>): void {
  replaceQuery(labQueryOf({ ...filter.peek(), ...part }));
}

export function LabsPage() {
  const { value, problem } = usePolledAnswer("labs", listAllLabs, INTERVAL, changes);
  const all = value.value;
  return (
    <>
      <div class="page-head">
        <h1>Labs</h1>
        {all !== null && <DiscoverButton workers={all.workers} />}
      </div>
      {problem.value !== null && (
        <section class="notice notice-line" data-color="orange" role="status">
          <p>The list could not be fetched: {problem.value}</p>
        </section>
      )}
      {all === null ? <p class="field-note">{problem.value === null ? "Loading…" : ""}</p> : <Labs all={all} />}
    </>
  );
}

function listedOf(workers: readonly ListedWorker[], { worker }: LabFilter): readonly ListedWorker[] {
  return workers.filter((each) => worker === "" || each.worker_id === worker);
}

function DiscoverButton({ workers }: { workers: readonly ListedWorker[] }) {
  const denial = denialFor("discover-labs");
  const chosen = listedOf(workers, filter.value);

  async function discover(): Promise<void> {
    const refusals = await sendAll(chosen, async (worker) => applyWorkers([await discoverLabs(worker.worker_id)]));
    const [first] = refusals;
    if (first !== undefined)
      showError(`The labs of ${first.item.worker_name} are not listed`, new Error(first.message));
    labsChanged();
  }

  return (
    <button
      type="button"
      class="button"
      disabled={denial !== null || chosen.length === 0}
      title={denial ?? "Ask CML for every lab now"}
      onClick={() => void discover()}
    >
      <Glyph name="retry" />
      Discover now
    </button>
  );
}

function Labs({ all: { labs, workers } }: { all: AllLabs }) {
  const shown = shownLabs(labs, filter.value);
  return (
    <>
      <Toolbar labs={labs} workers={workers} shown={shown.length} />
      <Listing workers={listedOf(workers, filter.value)} />
      {shown.length > 0 ? <Table labs={shown} /> : <NoLabs isFiltered={labs.length > 0} />}
    </>
  );
}

interface ToolbarProps {
  readonly labs: readonly LabView[];
  readonly workers: readonly ListedWorker[];
  readonly shown: number;
}

function Toolbar({ labs, workers, shown }: ToolbarProps) {
  const { worker, kind } = filter.value;
  const isKnown = workers.some(({ worker_id }) => worker_id === worker);
  return (
    <div class="toolbar" role="search">
      <select
        class="select select-small"
        aria-label="Worker"
        value={worker}
        onChange={(event) => choose({ worker: event.currentTarget.value })}
      >
        <option value="">All workers</option>
        {worker !== "" && !isKnown && <option value={worker}>{worker}</option>}
        {workers.map(({ worker_id, worker_name }) => (
          <option key={worker_id} value={worker_id}>
            {worker_name}
          </option>
        ))}
      </select>
      <div class="chips" role="group" aria-label="Kind">
        {LAB_KINDS.map((each) => (
          <KindChip key={each} kind={each} isChosen={kind === each} count={countKind(labs, filter.value, each)} />
        ))}
      </div>
      <div class="toolbar-end">
        <span class="shown">{formatCount(shown, "lab")}</span>
      </div>
    </div>
  );
}

function KindChip({ kind, isChosen, count }: { kind: LabKind; isChosen: boolean; count: number }) {
  const { label, color, meaning } = kindInfo(kind);
  return (
    <button
      type="button"
      class="chip"
      data-color={color}
      aria-pressed={isChosen}
      title={meaning}
      onClick={() => choose({ kind: isChosen ? "" : kind })}
    >
      <span class="dot" />
      {label} <span class="chip-count">{count}</span>
    </button>
  );
}

/** How old the list is: CML is asked worker by worker. One line, whatever it says. */
function Listing({ workers }: { workers: readonly ListedWorker[] }) {
  const listed = workers.flatMap(({ listed_at }) => (listed_at === null ? [] : [listed_at])).sort();
  const [oldest] = listed;
  const unlisted = workers.length - listed.length;
  const partial = workers.filter(({ is_partial }) => is_partial).map(({ worker_name }) => worker_name);
  return (
    <p class="lab-listing" data-color={partial.length > 0 ? "orange" : undefined}>
      {oldest !== undefined && (
        <>
          Listed <Ago at={oldest} />
          {workers.length > 1 && " or later"}.{" "}
        </>
      )}
      {unlisted > 0 && `${formatCount(unlisted, "worker")} not listed yet. `}
      {partial.length > 0 &&
        `LCM's account is no administrator on ${partial.join(", ")}: labs may be missing, and none are removed.`}
    </p>
  );
}

function NoLabs({ isFiltered }: { isFiltered: boolean }) {
  return (
    <section class="empty empty-small">
      <h2>{isFiltered ? "No matching labs" : "No labs"}</h2>
      {isFiltered ? (
        <button type="button" class="button" onClick={() => choose(ALL_LABS)}>
          Show all labs
        </button>
      ) : (
        <p>No worker that runs has a lab.</p>
      )}
    </section>
  );
}

const COLUMNS = ["Lab", "Worker", "Kind", "Owner", "Nodes", "State"] as const;

function Table({ labs }: { labs: readonly LabView[] }) {
  const drawn = useProgressiveCount(labs.length);
  return (
    <div class="lab-list">
      <div class="table" role="table" aria-label="Labs" aria-rowcount={labs.length + 1}>
        <div role="rowgroup" class="table-head">
          <div role="row" class="row row-head">
            {COLUMNS.map((column) => (
              <div key={column} role="columnheader" class="cell column-name">
                {column}
              </div>
            ))}
            <div role="columnheader" class="cell cell-actions">
              <span class="visually-hidden">Actions</span>
            </div>
          </div>
        </div>
        <div role="rowgroup">
          {labs.slice(0, drawn).map((lab) => (
            <Row key={keyOf(lab)} lab={lab} />
          ))}
        </div>
      </div>
    </div>
  );
}

function Row({ lab }: { lab: LabView }) {
  const { label, color, meaning } = kindInfo(lab.kind);
  const note = noteOf(lab, minute.value);
  return (
    <div role="row" class="row row-lab" data-lab-id={lab.lab_id} data-kind={lab.kind ?? ""}>
      <div role="cell" class="cell cell-lab">
        <span class="first lab-name" title={lab.lab_id}>
          {nameOf(lab)}
        </span>
        {lab.session_id !== null && (
          <a class="second link-text" href={sessionHref(lab.session_id)}>
            {lab.definition_name === null ? "Its session" : `Session of ${lab.definition_name}`}
          </a>
        )}
        <LabInCml lab={lab} />
        {note !== "" && <span class="second lab-note">{note}</span>}
      </div>
      <div role="cell" class="cell cell-worker">
        <a class="link-text" href={workerHref(lab.worker_id)}>
          {lab.worker_name}
        </a>
      </div>
      <div role="cell" class="cell">
        <span class="badge" data-color={color} title={meaning}>
          <span class="dot" />
          {label}
        </span>
      </div>
      <div role="cell" class="cell cell-owner">
        {lab.owner === "" ? <span class="absent">—</span> : lab.owner}
      </div>
      <div role="cell" class="cell cell-nodes">
        <span class="cell-unit">Nodes </span>
        {nodesText(lab)}
      </div>
      <div role="cell" class="cell">
        <span class="badge" data-color={labColor(lab.state)}>
          <span class="dot" />
          {stateLabel(lab.state)}
        </span>
      </div>
      <div role="cell" class="cell cell-actions">
        <Actions lab={lab} />
      </div>
    </div>
  );
}

function LabInCml({ lab }: { lab: LabView }) {
  const worker = entries.value.get(lab.worker_id)?.worker.value;
  const href = worker === undefined ? null : cmlPage(worker, cmlPlace.value, lab.lab_id);
  if (href === null) return null;
  return (
    <a class="second link-text" href={href} target="_blank" rel="noreferrer" aria-label={`Open in CML: ${nameOf(lab)}`}>
      Open in CML
    </a>
  );
}

/** The same four places in every row, so that a state that changes moves none of them. */
function Actions({ lab }: { lab: LabView }) {
  return (
    <div class="actions">
      <ActionButton lab={lab} action="start" icon="start" label="Start" onClick={() => void send(lab, "start")} />
      <ActionButton lab={lab} action="stop" icon="stop" label="Stop" onClick={() => void send(lab, "stop")} />
      {lab.kind === "adopted" ? (
        <ActionButton lab={lab} action="disown" icon="close" label="Disown" onClick={() => void send(lab, "disown")} />
      ) : (
        <ActionButton
          lab={lab}
          action="adopt"
          icon="held"
          label="Adopt"
          onClick={() => openLabDialog("adopt-lab", lab)}
        />
      )}
      {lab.kind === "session" ? (
        <EndButton lab={lab} />
      ) : (
        <ActionButton
          lab={lab}
          action="remove"
          icon="delete"
          label="Remove"
          onClick={() => openLabDialog("remove-lab", lab)}
        />
      )}
    </div>
  );
}

async function send(lab: LabView, action: "start" | "stop" | "disown"): Promise<void> {
  try {
    await requestLab(lab, action);
  } catch (error) {
    showError(`${DOING[action]} of ${nameOf(lab)} failed`, error);
  }
  labsChanged();
}

const OPERATION: Readonly<Record<LabAction, Operation>> = {
  start: "run-lab",
  stop: "run-lab",
  remove: "remove-lab",
  adopt: "adopt-lab",
  disown: "disown-lab",
};

interface ActionButtonProps {
  readonly lab: LabView;
  readonly action: LabAction;
  readonly icon: IconName;
  readonly label: string;
  readonly onClick: () => void;
}

function ActionButton({ lab, action, icon, label, onClick }: ActionButtonProps) {
  const denial = denialFor(OPERATION[action]);
  const name = `${label} ${nameOf(lab)}`;
  return (
    <button
      type="button"
      class="action"
      data-action={icon}
      aria-label={name}
      title={denial ?? name}
      disabled={denial !== null || !canRequest(lab, action)}
      onClick={onClick}
    >
      <Glyph name={icon} />
      <span class="action-text">{label}</span>
    </button>
  );
}

/** The lab of a session is removed by ending the session. */
function EndButton({ lab }: { lab: LabView }) {
  const id = lab.session_id ?? "";
  const isPossible = useComputed(() => {
    const session = sessions.value.get(id)?.session.value;
    return session !== undefined && canEnd(session);
  });
  const name = `End session of ${nameOf(lab)}`;
  return (
    <button
      type="button"
      class="action"
      data-action="delete"
      aria-label={name}
      title={name}
      disabled={!isPossible.value}
      onClick={() => openSessionsDialog("end-sessions", [id])}
    >
      <Glyph name="delete" />
      <span class="action-text">End session</span>
    </button>
  );
}
