import { type Signal, useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect } from "preact/hooks";

const listeners = new WeakMap<Element, (isVisible: boolean) => void>();

/** One observer for all rows. Rows are rendered shortly before they become visible. */
const observer = new IntersectionObserver(
  (changes) => {
    for (const change of changes) listeners.get(change.target)?.(change.isIntersecting);
  },
  { rootMargin: "150px 0px" },
);

/** Whether the element is visible, or about to be. */
export function useVisibility(element: RefObject<HTMLElement | null>): Signal<boolean> {
  const isVisible = useSignal(false);
  useEffect(() => {
    const target = element.current;
    if (target === null) return;
    listeners.set(target, (now) => {
      isVisible.value = now;
    });
    observer.observe(target);
    return () => observer.unobserve(target);
  }, []);
  return isVisible;
}
