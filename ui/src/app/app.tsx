/** The root component: the page, the open worker, dialogs and toasts. */

import { ActivityPage } from "../features/activity/activity-page";
import { AuditPage } from "../features/audit/audit-page";
import { AddDefinitionDialog } from "../features/booking/add-definition-dialog";
import { NewSessionPage } from "../features/booking/new-session-page";
import { CalendarPage } from "../features/calendar/calendar-page";
import { Cost } from "../features/cost/cost-page";
import { DefinitionPage } from "../features/definitions/definition-page";
import { DefinitionsPage } from "../features/definitions/definitions-page";
import { BulkDialog } from "../features/fleet/bulk-dialog";
import { CreateDialog } from "../features/fleet/create-dialog";
import { Fleet } from "../features/fleet/fleet";
import { HoldDialog } from "../features/idle/hold-dialog";
import { ClassSheetPage } from "../features/lablets/class-sheet-page";
import { AbandonDialog, EndDialog, ExtendDialog, RetryDialog } from "../features/lablets/session-dialogs";
import { SessionPage } from "../features/lablets/session-page";
import { SessionsPage } from "../features/lablets/sessions-page";
import { AdoptLabDialog } from "../features/labs/adopt-lab-dialog";
import { LabsPage } from "../features/labs/labs-page";
import { RemoveLabDialog } from "../features/labs/remove-lab-dialog";
import { DeregisterDialog, FleetLicenseDialog, RegisterDialog } from "../features/license/license-dialogs";
import { PaletteDialog } from "../features/palette/palette-dialog";
import { ShortcutsDialog } from "../features/palette/shortcuts-dialog";
import { ApiPage } from "../features/reference/api-page";
import { Scaling } from "../features/scaling/scaling-page";
import { SchedulerPage } from "../features/scheduler/scheduler-page";
import {
  DiscoveryDialog,
  NewTokenDialog,
  RevokeDialog,
  SignOutEverywhereDialog,
  SignOutPersonDialog,
  TemplateDialog,
  TokenCreatedDialog,
} from "../features/settings/settings-dialogs";
import { SettingsPage } from "../features/settings/settings-page";
import { SystemPage } from "../features/system/system-page";
import { AdoptDialog } from "../features/worker/adoption";
import { CertificateDialog } from "../features/worker/certificate";
import { CmlLoginDialog } from "../features/worker/cml-login-dialog";
import { DeleteDialog } from "../features/worker/delete-dialog";
import { TagsDialog } from "../features/worker/tags-dialog";
import { WorkerPage } from "../features/worker/worker-page";
import { WorkerPanel } from "../features/worker/worker-panel";
import { Loading } from "../kit/loading";
import { mediaQuery } from "../kit/media";
import { openDialog } from "./commands";
import { Header, StaleNotice } from "./header";
import {
  isApiReference,
  isNewSession,
  openClassId,
  openDefinitionId,
  openSessionId,
  openWorkerId,
  openWorkerPageId,
  type PageId,
  page,
} from "./router";
import { session } from "./session";
import { SignIn } from "./sign-in";
import { announcement } from "./store";
import { connection } from "./stream";
import { Toasts } from "./toast-list";

/** Narrower than this, an open worker covers the fleet instead of standing beside it. */
const isNarrow = mediaQuery("(max-width: 1099px)");

export function App() {
  return (
    <>
      {session.value.kind === "signed-out" ? <SignIn /> : <Dashboard />}
      <Toasts />
      <div class="visually-hidden" role="status" aria-live="polite">
        {announcement}
      </div>
    </>
  );
}

/** Nothing is asked for before it is known who asks. */
function Dashboard() {
  if (session.value.kind === "checking")
    return (
      <div class="shell">
        <Header />
        <main class="page">
          <h1 class="visually-hidden">{page.value.label}</h1>
          {connection.value === "offline" ? (
            <p class="panel-note" role="alert">
              The control plane does not answer. It is asked again every few seconds.
            </p>
          ) : (
            <Loading />
          )}
        </main>
      </div>
    );
  return <Pages />;
}

function Pages() {
  const workerId = openWorkerId.value;
  const isCovered = workerId !== null && isNarrow.value;
  return (
    <div class="shell" data-worker-open={workerId !== null}>
      <Header />
      <main class="page" inert={isCovered}>
        <StaleNotice />
        <Page id={page.value.id} />
      </main>
      {workerId !== null && <WorkerPanel key={workerId} id={workerId} />}
      <Dialogs />
    </div>
  );
}

function Page({ id }: { id: PageId }) {
  switch (id) {
    case "fleet":
      return <Workers />;
    case "sessions":
      return <Sessions />;
    case "definitions":
      return <Definitions />;
    case "calendar":
      return <CalendarPage />;
    case "scheduler":
      return <SchedulerPage />;
    case "labs":
      return <LabsPage />;
    case "scaling":
      return <Scaling />;
    case "cost":
      return <Cost />;
    case "audit":
      return <AuditPage />;
    case "activity":
      return <ActivityPage />;
    case "settings":
      return isApiReference.value ? <ApiPage /> : <SettingsPage />;
    case "system":
      return <SystemPage />;
  }
}

function Workers() {
  const id = openWorkerPageId.value;
  return id === null ? <Fleet /> : <WorkerPage key={id} id={id} />;
}

function Sessions() {
  const id = openSessionId.value;
  const classId = openClassId.value;
  if (isNewSession.value) return <NewSessionPage />;
  if (classId !== null) return <ClassSheetPage key={classId} id={classId} />;
  return id === null ? <SessionsPage /> : <SessionPage key={id} id={id} />;
}

function Definitions() {
  const id = openDefinitionId.value;
  return id === null ? <DefinitionsPage /> : <DefinitionPage key={id} id={id} />;
}

function Dialogs() {
  const dialog = openDialog.value;
  switch (dialog?.kind) {
    case "create":
      return <CreateDialog />;
    case "delete":
      return <DeleteDialog entry={dialog.entry} />;
    case "hold":
      return <HoldDialog entries={dialog.entries} />;
    case "adopt":
      return <AdoptDialog entries={dialog.entries} />;
    case "bulk":
      return <BulkDialog action={dialog.action} entries={dialog.entries} />;
    case "register":
      return <RegisterDialog entry={dialog.entry} />;
    case "deregister":
      return <DeregisterDialog entry={dialog.entry} />;
    case "cml-login":
      return <CmlLoginDialog entry={dialog.entry} />;
    case "certificate":
      return <CertificateDialog entry={dialog.entry} />;
    case "tags":
      return <TagsDialog entry={dialog.entry} />;
    case "fleet-license":
      return <FleetLicenseDialog />;
    case "template":
      return <TemplateDialog name={dialog.name} isChanged={dialog.isChanged} />;
    case "palette":
      return <PaletteDialog />;
    case "shortcuts":
      return <ShortcutsDialog />;
    case "discovery":
      return <DiscoveryDialog />;
    case "new-token":
      return <NewTokenDialog />;
    case "token-created":
      return <TokenCreatedDialog name={dialog.name} token={dialog.token} />;
    case "revoke-token":
      return <RevokeDialog token={dialog.token} />;
    case "sign-out-everywhere":
      return <SignOutEverywhereDialog />;
    case "sign-out-person":
      return <SignOutPersonDialog browser={dialog.browser} />;
    case "add-definition":
      return <AddDefinitionDialog />;
    case "end-sessions":
      return <EndDialog ids={dialog.ids} />;
    case "extend-sessions":
      return <ExtendDialog ids={dialog.ids} />;
    case "retry-session":
      return <RetryDialog ids={dialog.ids} />;
    case "abandon-session":
      return <AbandonDialog ids={dialog.ids} />;
    case "adopt-lab":
      return <AdoptLabDialog lab={dialog.lab} />;
    case "remove-lab":
      return <RemoveLabDialog lab={dialog.lab} />;
    case undefined:
      return null;
  }
}
