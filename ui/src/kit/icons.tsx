/** Drawn on a 16 px grid in the text's color. An icon always accompanies a name. */

import type { ComponentChildren } from "preact";

function Icon({ children }: { children: ComponentChildren }) {
  return (
    <svg
      class="icon"
      viewBox="0 0 16 16"
      width="16"
      height="16"
      fill="none"
      stroke="currentColor"
      stroke-width="1.5"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      {children}
    </svg>
  );
}

const SHAPES = {
  start: <path d="M5 3.3v9.4a.5.5 0 0 0 .77.42l7.1-4.7a.5.5 0 0 0 0-.84l-7.1-4.7A.5.5 0 0 0 5 3.3Z" />,
  stop: <rect x="3.25" y="3.25" width="9.5" height="9.5" rx="2" />,
  drain: <path d="M2.5 3h11L9.5 8v4.2l-3 1.3V8L2.5 3Z" />,
  "cancel-drain": <path d="M6.5 3 3 6.5 6.5 10M3.25 6.5H9a3.75 3.75 0 0 1 0 7.5H6.5" />,
  retry: <path d="M13 8a5 5 0 1 1-1.6-3.65M13 2v3h-3" />,
  delete: (
    <path d="M2.75 4.25h10.5M6 4V2.75h4V4M4 4.5l.55 8.1a1 1 0 0 0 1 .9h4.9a1 1 0 0 0 1-.9l.55-8.1M6.75 7v3.75M9.25 7v3.75" />
  ),
  held: <path d="M3.75 7h8.5v6.25h-8.5zM5.5 7V5a2.5 2.5 0 0 1 5 0v2" />,
  pausing: <path d="M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11ZM6.5 6v4M9.5 6v4" />,
  license: <path d="M5.5 10.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8.5 7.5H14M12 7.5V10" />,
  plus: <path d="M8 3v10M3 8h10" />,
  search: <path d="M7 12a5 5 0 1 0 0-10 5 5 0 0 0 0 10ZM10.7 10.7 14 14" />,
  expand: <path d="M9.5 2.75h3.75V6.5M13.25 2.75 9 7M6.5 13.25H2.75V9.5M2.75 13.25 7 9" />,
  close: <path d="m4 4 8 8M12 4l-8 8" />,
  view: <path d="M2.75 4.5h5M11.5 4.5h1.75M2.75 11.5H4.5M8.25 11.5h5M9.5 6.25v-3.5M6.25 13.25v-3.5" />,
  copy: (
    <path d="M5.5 5.5v-2a1 1 0 0 1 1-1h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-2M3.5 5.5h6a1 1 0 0 1 1 1v6a1 1 0 0 1-1 1h-6a1 1 0 0 1-1-1v-6a1 1 0 0 1 1-1Z" />
  ),
  check: <path d="m3 8.5 3.2 3.2L13 4.8" />,
  download: <path d="M8 2.5v7.5M4.75 7 8 10.25 11.25 7M2.75 13.25h10.5" />,
  external: <path d="M6.5 3.5h-3v9h9v-3M9 3h4v4M13 3 7.5 8.5" />,
  "sign-out": <path d="M6 13.25H3.75a1 1 0 0 1-1-1v-8.5a1 1 0 0 1 1-1H6M10.5 11l3-3-3-3M13.25 8H6.5" />,
  auto: (
    <>
      <circle cx="8" cy="8" r="5.25" />
      <path d="M8 2.75a5.25 5.25 0 0 1 0 10.5Z" fill="currentColor" />
    </>
  ),
  dark: <path d="M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8Z" />,
  light: (
    <>
      <circle cx="8" cy="8" r="2.75" />
      <path d="M8 1.25v1.5M8 13.25v1.5M1.25 8h1.5M13.25 8h1.5M3.2 3.2l1.1 1.1M11.7 11.7l1.1 1.1M12.8 3.2l-1.1 1.1M4.3 11.7l-1.1 1.1" />
    </>
  ),
  alert: <path d="M8 2.2 14.3 13a.6.6 0 0 1-.5.9H2.2a.6.6 0 0 1-.5-.9L8 2.2ZM8 6.5v3.25M8 11.8v.01" />,
} as const satisfies Record<string, ComponentChildren>;

export type IconName = keyof typeof SHAPES;

export function Glyph({ name }: { name: IconName }) {
  return <Icon>{SHAPES[name]}</Icon>;
}

export function Spinner() {
  return (
    <svg class="icon spinner" viewBox="0 0 16 16" width="16" height="16" fill="none" aria-hidden="true">
      <circle cx="8" cy="8" r="5.5" stroke="currentColor" stroke-opacity=".25" stroke-width="1.75" />
      <path d="M13.5 8A5.5 5.5 0 0 0 8 2.5" stroke="currentColor" stroke-width="1.75" stroke-linecap="round" />
    </svg>
  );
}

/** Three nodes of a lab: the product's mark, the same as public/favicon.svg. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="var(--brand)" />
      <path
        d="M16 10.5 9.5 21.5h13z"
        fill="none"
        stroke="#fff"
        stroke-opacity=".55"
        stroke-width="1.8"
        stroke-linejoin="round"
      />
      <circle cx="16" cy="10" r="3.4" fill="#fff" />
      <circle cx="9.5" cy="21.5" r="3.4" fill="#fff" />
      <circle cx="22.5" cy="21.5" r="3.4" fill="#fff" />
    </svg>
  );
}
