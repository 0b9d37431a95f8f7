/** The session: while a user is signed in, the page loads the fleet and subscribes to its events. */

import { computed, effect, signal } from "@preact/signals";
import { costReport } from "../features/cost/cost";
import { showTerminated } from "../features/fleet/view";
import { applySessions, beginSessions, clearSessions, endSessions } from "../features/lablets/store";
import { labsChanged } from "../features/labs/lab-changes";
import { applyLabChange, applyLabStatus } from "../features/labs/labs";
import { clearDebts } from "../features/license/debts";
import { resetHistory } from "../features/worker/history";
import { applySamples, clearInactiveLoads, retainLoads } from "../features/worker/live";
import { denialReason, type Operation } from "../features/worker/model";
import type { CmlPlace } from "../generated/api";
import type { Role } from "../generated/rules";
import * as api from "./api";
import { me } from "./people";
import * as store from "./store";
import { connection, EventStream } from "./stream";
import { showError } from "./toasts";

export type SessionState =
  | { readonly kind: "checking" }
  | { readonly kind: "signed-out" }
  | ({ readonly kind: "signed-in" } & api.Session);

export const session = signal<SessionState>({ kind: "checking" });

/** At which address and port people reach a CML. */
export const cmlPlace = computed<CmlPlace>(() =>
  session.value.kind === "signed-in" ? session.value.cml : { uses_private_ip: false, port: 443 },
);

const role = computed<Role>(() => (session.value.kind === "signed-in" ? session.value.role : "viewer"));

/** Why the user may not request the operation, or null. */
export function denialFor(operation: Operation): string | null {
  return denialReason(role.value, operation);
}

const RETRY_MS = 3_000;

const stream = new EventStream({
  applyWorkers(workers) {
    store.applyWorkers(workers);
    clearInactiveLoads(workers);
  },
  applySamples,
  applyLabChange: (change) => applyLabChange(change, Date.now()),
  labsChanged,
  applyLabStatus: (status) => applyLabStatus(status, Date.now()),
  beginSessions,
  replaceSessions: endSessions,
  applySessions,
  replaceWorkers(workers) {
    store.replaceWorkers(workers);
    retainLoads(new Set(workers.map((worker) => worker.id)));
    resetHistory();
    // Workers terminated since the last snapshot are not in this one.
    if (showTerminated.peek()) void loadTerminated();
  },
  recover,
});

export async function startSession(): Promise<void> {
  api.onUnauthorized(onSignedOut);
  window.addEventListener("online", reconnectNow);
  for (const awake of ["visibilitychange", "resume"])
    document.addEventListener(awake, () => {
      if (!document.hidden) stream.wake();
    });
  effect(() => {
    if (session.value.kind === "signed-in" && showTerminated.value) void loadTerminated();
  });
  await resumeSession();
}

async function resumeSession(): Promise<void> {
  try {
    onSignedIn(await api.getSession());
  } catch (error) {
    if (error instanceof api.ApiError && error.status === 401) return;
    connection.value = "offline";
    window.setTimeout(() => void resumeSession(), RETRY_MS);
  }
}

export async function signIn(token: string): Promise<void> {
  onSignedIn(await api.signIn(token));
}

export async function signOut(): Promise<void> {
  try {
    await api.signOut();
    onSignedOut();
  } catch (error) {
    showError("Could not sign out", error);
  }
}

/** End every browser session of the user, this one too. */
export async function signOutEverywhere(): Promise<void> {
  await api.signOutEverywhere();
  onSignedOut();
}

export function reconnectNow(): void {
  stream.retryNow();
}

function onSignedIn(user: api.Session): void {
  session.value = { kind: "signed-in", ...user };
  me.value = user;
  stream.open();
  void load();
}

function onSignedOut(): void {
  stream.close();
  session.value = { kind: "signed-out" };
  me.value = null;
  store.clearStore();
  retainLoads(new Set());
  resetHistory();
  clearDebts();
  clearSessions();
  costReport.value = null;
}

async function load(): Promise<void> {
  const catalogues = loadCatalogues();
  try {
    store.applyWorkers(await api.listWorkers());
    store.isLoaded.value = true;
  } catch (error) {
    // The stream's snapshot may still deliver them.
    if (!store.isLoaded.value) showError("Could not load the workers", error);
  }
  await catalogues;
}

async function loadCatalogues(): Promise<void> {
  try {
    [store.templates.value, store.regions.value] = await Promise.all([api.listTemplates(), api.listRegions()]);
  } catch (error) {
    showError("Could not load templates and regions", error);
  }
}

async function loadTerminated(): Promise<void> {
  try {
    store.applyWorkers(await api.listTerminatedWorkers());
  } catch (error) {
    showError("Could not load the terminated workers", error);
  }
}

async function recover(): Promise<void> {
  try {
    store.applyWorkers(await api.listWorkers());
  } catch {
    // A 401 leads to the sign-in view; any other error shows as the connection's state.
  }
}
