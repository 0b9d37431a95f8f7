/** Why the worker is in its status and what happens next: the server's explanation. */

import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useCallback, useEffect } from "preact/hooks";
import * as api from "../../app/api";
import type { Explanation, Reason, WorkerView } from "../../generated/api";
import { now } from "../../kit/clock";
import { formatExact } from "../../kit/format";
import { Ticking } from "../../kit/time";
import { drainSentence } from "../idle/idle";
import { meaningOf, reasonText, reasonTime, staleAt } from "./explain";

/** A browser's timers cannot wait longer: a longer wait fetches once in between. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Fetch the explanation again whenever the record changes or one of the explanation's times is reached. */
export function useExplanation(worker: WorkerView): ReadonlySignal<Explanation | null> {
  const explanation = useSignal<Explanation | null>(null);
  const refetches = useSignal(0);

  useEffect(() => {
    let isCurrent = true;
    api.explain(worker.id).then(
      (answer) => {
        if (isCurrent) explanation.value = answer;
      },
      () => undefined, // the status reason of the record is shown instead
    );
    return () => {
      isCurrent = false;
    };
  }, [worker.id, worker.version, refetches.value]);

  const known = explanation.value;
  useEffect(() => {
    const at = known === null ? null : staleAt(known, now.peek());
    if (at === null) return;
    const timer = window.setTimeout(
      () => {
        refetches.value += 1;
      },
      Math.min(at - now.peek(), LONGEST_TIMER_MS),
    );
    return () => window.clearTimeout(timer);
  }, [known]);

  return explanation;
}

export function Why({ worker, explanation }: { worker: WorkerView; explanation: Explanation | null }) {
  return (
    <>
      <p class="state-meaning">{meaningOf(worker, explanation)}</p>
      {worker.status === "draining" && <DrainNote worker={worker} />}
      {explanation === null ? (
        worker.status_reason !== "" && <p class="state-reason">{worker.status_reason}</p>
      ) : (
        <dl class="why">
          <Reasons label="Why" reasons={explanation.holding} otherwise="No reason recorded." />
          <Reasons label="Next" reasons={explanation.next} otherwise="Nothing is scheduled." />
        </dl>
      )}
    </>
  );
}

function DrainNote({ worker }: { worker: WorkerView }) {
  const text = useCallback((at: number) => drainSentence(worker, at), [worker]);
  return (
    <p class="state-drain">
      <Ticking text={text} />
    </p>
  );
}

interface ReasonsProps {
  readonly label: string;
  readonly reasons: readonly Reason[];
  readonly otherwise: string;
}

function Reasons({ label, reasons, otherwise }: ReasonsProps) {
  return (
    <div class="why-part">
      <dt>{label}</dt>
      <dd>
        {reasons.length === 0 ? (
          <span class="absent">{otherwise}</span>
        ) : (
          <ul class="reasons">
            {reasons.map((reason) => (
              <li key={reason.code} class="reason" data-code={reason.code}>
                {reasonText(reason)}
                {reason.at !== null && <ReasonTime reason={reason} at={reason.at} />}
              </li>
            ))}
          </ul>
        )}
      </dd>
    </div>
  );
}

function ReasonTime({ reason, at }: { reason: Reason; at: string }) {
  const text = useCallback((moment: number) => reasonTime(reason, moment) ?? "", [reason]);
  return (
    <time class="reason-time" dateTime={at} title={formatExact(at)}>
      <Ticking text={text} />
    </time>
  );
}
