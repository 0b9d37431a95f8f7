import { useEffect, useState } from "preact/hooks";

/** More than a screen holds, less than a frame's worth of work. */
const STEP = 50;

/** How many of a long list's items to draw: a screenful at once, the rest over the next frames. */
export function useGradualCount(total: number): number {
  const [count, setCount] = useState(STEP);
  useEffect(() => {
    // A list that has shrunk grows gradually again.
    if (count > total) return setCount(Math.max(STEP, total));
    if (count === total) return;
    const frame = window.requestAnimationFrame(() => setCount(Math.min(count + STEP, total)));
    return () => window.cancelAnimationFrame(frame);
  }, [count, total]);
  // One more worker is drawn at once: whoever created it wants to see it.
  return total <= count + STEP ? total : count;
}
