import { useComputed } from "@preact/signals";
import { useRef } from "preact/hooks";
import { rowLinkId } from "../../app/keyboard";
import { openWorkerId, showWorker, workerHref } from "../../app/router";
import { desiredStatus, type WorkerEntry } from "../../app/store";
import type { WorkerView } from "../../generated/api";
import { Age, Ago } from "../../kit/time";
import { PauseIndicator } from "../idle/pausing";
import { LoadCell } from "../worker/load";
import { DesiredHint, StatusBadge } from "../worker/status-badge";
import { useStatusGlow } from "./glow";
import { selection, toggleSelected } from "./selection";
import { isShown } from "./view";
import { WorkerActions } from "./worker-actions";

export function WorkerRow({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  const isOpen = useComputed(() => openWorkerId.value === entry.id);
  const isSelected = useComputed(() => selection.value.has(entry.id));
  const row = useRef<HTMLDivElement>(null);
  useStatusGlow(row, worker.status);
  return (
    <div
      ref={row}
      role="row"
      class="row row-worker"
      data-worker-name={worker.name}
      data-status={worker.status}
      aria-current={isOpen.value}
      data-selected={isSelected.value}
      onClick={(event) => openUnlessOnControl(event, entry.id)}
    >
      <div role="cell" class="cell cell-check">
        <label class="check">
          <input
            type="checkbox"
            aria-label={`Select ${worker.name}`}
            checked={isSelected.value}
            onClick={(event) => toggleSelected(entry.id, event.shiftKey)}
          />
        </label>
      </div>
      <div role="cell" class="cell cell-name">
        <a id={rowLinkId(entry.id)} class="name" href={workerHref(entry.id)} title={worker.name}>
          {worker.name}
        </a>
        <span class="second mono">{worker.ec2_instance_id ?? "no instance"}</span>
      </div>
      {isShown("status") && (
        <div role="cell" class="cell cell-status">
          <StatusCell entry={entry} />
        </div>
      )}
      {isShown("load") && (
        <div role="cell" class="cell cell-load">
          <LoadCell entry={entry} />
        </div>
      )}
      {isShown("template") && (
        <div role="cell" class="cell cell-template">
          <span class="first">{worker.template_name}</span>
          <span class="second">{worker.instance_type ?? "—"}</span>
        </div>
      )}
      {isShown("region") && (
        <div role="cell" class="cell cell-region">
          <span class="first">{worker.aws_region}</span>
        </div>
      )}
      {isShown("cml") && (
        <div role="cell" class="cell cell-cml">
          <CmlVersion worker={worker} />
        </div>
      )}
      {isShown("address") && (
        <div role="cell" class="cell cell-address mono">
          <span class="first">{worker.public_ip ?? worker.private_ip ?? "—"}</span>
          {worker.public_ip !== null && worker.private_ip !== null && <span class="second">{worker.private_ip}</span>}
        </div>
      )}
      {isShown("age") && (
        <div role="cell" class="cell cell-age">
          <span class="first">
            <Age at={worker.created_at} />
          </span>
          <span class="second">
            changed <Ago at={worker.updated_at} />
          </span>
        </div>
      )}
      <div role="cell" class="cell cell-actions">
        <WorkerActions entry={entry} />
      </div>
    </div>
  );
}

function StatusCell({ entry }: { entry: WorkerEntry }) {
  const worker = entry.worker.value;
  const desired = desiredStatus(entry);
  // A worker in its desired status needs no reason.
  const isSettled = worker.status === desired;
  return (
    <>
      <span class="status-line">
        <StatusBadge status={worker.status} />
        <DesiredHint status={worker.status} desired={desired} />
        <PauseIndicator entry={entry} />
      </span>
      {!worker.is_trusted && <span class="second">not adopted</span>}
      {!isSettled && worker.status_reason !== "" && (
        <span class="second reason" title={worker.status_reason}>
          {worker.status_reason}
        </span>
      )}
    </>
  );
}

export function CmlVersion({ worker }: { worker: WorkerView }) {
  if (worker.cml_version === null && !worker.cml_ready) return <span class="first absent">—</span>;
  const readiness = worker.cml_ready ? "CML answers" : "CML does not answer yet";
  const version = worker.cml_version ?? "CML";
  return (
    <span class="first cml" title={`${version}: ${readiness}`}>
      <span class="dot" data-color={worker.cml_ready ? "green" : "grey"} />
      {version.split("+", 1)[0]}
      <span class="visually-hidden">, {readiness}</span>
    </span>
  );
}

function openUnlessOnControl(event: MouseEvent, id: string): void {
  // The path at the time of the click: a button may have rendered its icon again since.
  const isOnControl = event.composedPath().some((node) => node instanceof Element && node.matches("a, button, label"));
  const isSelectingText = window.getSelection()?.isCollapsed === false;
  if (!isOnControl && !isSelectingText) showWorker(id);
}
