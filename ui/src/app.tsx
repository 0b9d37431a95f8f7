/** Which view fills the window, and what lies above all of them. */

import { CreateDialog } from "./components/create-dialog";
import { DeleteDialog } from "./components/delete-dialog";
import { Fleet } from "./components/fleet";
import { Header } from "./components/header";
import { SignIn } from "./components/sign-in";
import { Toasts } from "./components/toasts";
import { WorkerPanel } from "./components/worker-panel";
import { openDialog } from "./commands";
import { mediaQuery } from "./media";
import { openWorkerId } from "./router";
import { session } from "./session";
import { announcement } from "./store";

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

function Dashboard() {
  const workerId = openWorkerId.value;
  const isCovered = workerId !== null && isNarrow.value;
  return (
    <div class="shell" data-worker-open={workerId !== null}>
      <Header />
      <main class="page" inert={isCovered}>
        <Fleet />
      </main>
      {workerId !== null && <WorkerPanel key={workerId} id={workerId} />}
      <Dialogs />
    </div>
  );
}

function Dialogs() {
  const dialog = openDialog.value;
  switch (dialog?.kind) {
    case "create":
      return <CreateDialog />;
    case "delete":
      return <DeleteDialog entry={dialog.entry} />;
    case undefined:
      return null;
  }
}
