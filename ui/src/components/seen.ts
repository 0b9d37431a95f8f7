import { type Signal, useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect } from "preact/hooks";

const listeners = new WeakMap<Element, (isSeen: boolean) => void>();

/** One observer for all rows. A little before they come into view they are drawn. */
const observer = new IntersectionObserver(
  (changes) => {
    for (const change of changes) listeners.get(change.target)?.(change.isIntersecting);
  },
  { rootMargin: "150px 0px" },
);

/** Whether the element is on the screen, or about to be. */
export function useSeen(element: RefObject<HTMLElement | null>): Signal<boolean> {
  const isSeen = useSignal(false);
  useEffect(() => {
    const target = element.current;
    if (target === null) return;
    listeners.set(target, (now) => {
      isSeen.value = now;
    });
    observer.observe(target);
    return () => observer.unobserve(target);
  }, []);
  return isSeen;
}
