/**
 * A press ends where it began. A live update may move a button or a row away while it is pressed; the browser
 * would then deliver the click to no element. A press that slides off its control is cancelled.
 */

const PRESSED = "a[href], button, label:has([type=checkbox], [type=radio]), .row-worker, .row-session";
/** Movement below this is no slide. */
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
