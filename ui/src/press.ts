/**
 * A press ends where it began. What arrives live may move a button or a row away while it is pressed; the
 * browser would then give the click to nobody. Whoever slides off before letting go has changed their mind.
 */

const PRESSED = "a[href], button, label:has([type=checkbox], [type=radio]), .row-worker";
/** A hand is not quite still. */
const STILL_PX = 8;

interface Press {
  readonly id: number;
  readonly control: Element;
  readonly x: number;
  readonly y: number;
}

let press: Press | null = null;

export function startPresses(): void {
  document.addEventListener("pointerdown", begin, true);
  document.addEventListener("pointermove", slide, true);
}

function begin({ target, pointerId, isPrimary, clientX, clientY }: PointerEvent): void {
  const control = target instanceof Element && isPrimary ? target.closest(PRESSED) : null;
  press = control === null ? null : { id: pointerId, control, x: clientX, y: clientY };
  control?.setPointerCapture(pointerId);
}

function slide({ pointerId, clientX, clientY }: PointerEvent): void {
  if (press === null || pointerId !== press.id) return;
  if (Math.hypot(clientX - press.x, clientY - press.y) <= STILL_PX) return;
  if (press.control.hasPointerCapture(pointerId)) press.control.releasePointerCapture(pointerId);
  press = null;
}
