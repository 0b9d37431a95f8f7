/** Why the worker is as it is and what comes next, in the words of those who decide it. */

import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useCallback, useEffect } from "preact/hooks";
import * as api from "../api";
import { now } from "../clock";
import { meaningOf, reasonText, reasonTime, staleAt } from "../explain";
import { formatExact } from "../format";
import type { Explanation, Reason, WorkerView } from "../generated/api";
import { drainSentence } from "../idle";
import { Ticking } from "./time";

/** A browser's timers cannot wait longer: whoever waits for more asks once in between. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Asked for again whenever the record has changed or one of the account's moments has come. */
export function useExplanation(worker: WorkerView): ReadonlySignal<Explanation | null> {
  const explanation = useSignal<Explanation | null>(null);
  const turn = useSignal(0);

  useEffect(() => {
    let isCurrent = true;
    api.explain(worker.id).then(
      (answer) => {
        if (isCurrent) explanation.value = answer;
      },
      () => undefined, // the record itself says the most important
    );
    return () => {
      isCurrent = false;
    };
  }, [worker.id, worker.version, turn.value]);

  const account = explanation.value;
  useEffect(() => {
    const at = account === null ? null : staleAt(account, now.peek());
    if (at === null) return;
    const timer = window.setTimeout(
      () => {
        turn.value += 1;
      },
      Math.min(at - now.peek(), LONGEST_TIMER_MS),
    );
    return () => window.clearTimeout(timer);
  }, [account]);

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
          <Reasons label="Why" reasons={explanation.holding} otherwise="Nothing is to be said about it." />
          <Reasons label="Next" reasons={explanation.next} otherwise="Nothing happens by itself." />
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
