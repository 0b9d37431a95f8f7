import { useEffect, useState } from "preact/hooks";

/** More than one screen shows, less than one frame can render. */
const STEP = 50;

/** How many items of a long list to render: one screen at once, the others over the next frames. */
export function useProgressiveCount(total: number): number {
  const [count, setCount] = useState(STEP);
  useEffect(() => {
    // A list that has shrunk grows step by step again.
    if (count > total) return setCount(Math.max(STEP, total));
    if (count === total) return;
    const frame = window.requestAnimationFrame(() => setCount(Math.min(count + STEP, total)));
    return () => window.cancelAnimationFrame(frame);
  }, [count, total]);
  // A single new worker is rendered at once: the user who created it must see it.
  return total <= count + STEP ? total : count;
}
