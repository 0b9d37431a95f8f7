import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { WorkerStatus } from "../../generated/api";
import { mediaQuery } from "../../kit/media";
import { statusInfo } from "../worker/model";

const wantsLessMotion = mediaQuery("(prefers-reduced-motion: reduce)");

const GLOW_MS = 1_800;

/** Let the element glow in the new status's color for a moment whenever the status changes. */
export function useStatusGlow(element: RefObject<HTMLElement | null>, status: WorkerStatus): void {
  const shown = useRef(status);
  useEffect(() => {
    if (shown.current === status) return;
    shown.current = status;
    if (wantsLessMotion.peek()) return;
    const glow = `var(--${statusInfo(status).color}-soft)`;
    element.current?.animate([{ backgroundColor: glow, offset: 0 }], { duration: GLOW_MS, easing: "ease-out" });
  }, [status]);
}
