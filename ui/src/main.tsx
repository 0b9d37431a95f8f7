/** Wires the page together. Start reading here. */

import { render } from "preact";
import { App } from "./app/app";
import { startKeyboard } from "./app/keyboard";
import { startPresses } from "./app/press";
import { startRouter } from "./app/router";
import { startSession } from "./app/session";
import { startTheme } from "./app/theme";
import { startClock } from "./kit/clock";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/shell.css";
import "./styles/fleet.css";
import "./styles/worker.css";
import "./styles/live.css";
import "./styles/worker-page.css";
import "./styles/pages.css";
import "./styles/sessions.css";
import "./styles/topology.css";
import "./styles/booking.css";
import "./styles/calendar.css";
import "./styles/scheduler.css";
import "./styles/system.css";
import "./styles/settings.css";
import "./styles/reference.css";
import "./styles/palette.css";
import "./styles/dialog.css";
import "./styles/sign-in.css";

startTheme();
startClock();
startRouter();
startKeyboard();
startPresses();
void startSession();

const root = document.getElementById("app");
if (root !== null) render(<App />, root);
