import { useEffect, useRef } from "preact/hooks";
import { Glyph, Mark } from "../kit/icons";
import { Ago } from "../kit/time";
import { PAGES, page } from "./router";
import { reconnectNow, session, signOut } from "./session";
import { type Connection, connection, staleSince } from "./stream";
import { nextTheme, theme } from "./theme";

export function Header() {
  return (
    <header class="topbar">
      <a class="brand" href="#/">
        <Mark />
        <span class="brand-name">Lablet Cloud Manager</span>
      </a>
      <Navigation />
      <div class="topbar-end">
        <ConnectionPill />
        <ThemeToggle />
        <Account />
      </div>
    </header>
  );
}

function Navigation() {
  const nav = useRef<HTMLElement>(null);
  const current = page.value.id;
  useEffect(() => {
    // Where not all pages fit, the present one is in view.
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  return (
    <nav ref={nav} class="nav" aria-label="Pages">
      {PAGES.map(({ id, label, href, key }) => (
        <a
          key={id}
          class="nav-link"
          href={href}
          title={`${label} (${key})`}
          aria-current={current === id ? "page" : undefined}
        >
          {label}
        </a>
      ))}
    </nav>
  );
}

const CONNECTION: Readonly<Record<Connection, { label: string; meaning: string }>> = {
  live: { label: "Live", meaning: "Changes appear as they happen." },
  connecting: { label: "Connecting", meaning: "Reconnecting; what you see may be out of date." },
  offline: { label: "Offline", meaning: "No connection; what you see may be out of date. Click to try now." },
};

function ConnectionPill() {
  const state = connection.value;
  const { label, meaning } = CONNECTION[state];
  return (
    <button
      type="button"
      class="pill"
      data-connection={state}
      title={meaning}
      aria-label={`Connection: ${label}`}
      aria-disabled={state !== "offline"}
      onClick={() => state === "offline" && reconnectNow()}
    >
      <span class="dot" />
      <span class="pill-label">{label}</span>
    </button>
  );
}

/**
 * What the page shows is not the present: after the sleep of a computer it may be hours old. It lies above the page,
 * whose controls do not move when it comes or goes.
 */
export function StaleNotice() {
  const since = staleSince.value;
  if (since === null) return null;
  return (
    <section class="stale" data-color="orange" role="status">
      <p>
        Out of date: the control plane was last heard <Ago at={new Date(since).toISOString()} />. Reconnecting…
      </p>
      <button type="button" class="button button-small" onClick={reconnectNow}>
        Reconnect now
      </button>
    </section>
  );
}

function ThemeToggle() {
  const label = `Theme: ${theme.value}`;
  return (
    <button type="button" class="icon-button" title={label} aria-label={label} onClick={nextTheme}>
      <Glyph name={theme.value} />
    </button>
  );
}

function Account() {
  const who = session.value;
  if (who.kind !== "signed-in") return null;
  return (
    <div class="account">
      <span class="account-who" title={`Signed in as ${who.actor} with the role ${who.role}`}>
        <span class="account-actor">{who.actor}</span>
        <span class="role">{who.role}</span>
      </span>
      <button type="button" class="icon-button" title="Sign out" aria-label="Sign out" onClick={() => void signOut()}>
        <Glyph name="sign-out" />
      </button>
    </div>
  );
}
