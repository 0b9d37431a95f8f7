/** Wires the page together. Start reading here. */

import { render } from "preact";
import { App } from "./app";
import { startClock } from "./clock";
import { startKeyboard } from "./keyboard";
import { startPresses } from "./press";
import { startRouter } from "./router";
import { startSession } from "./session";
import { startTheme } from "./theme";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/shell.css";
import "./styles/fleet.css";
import "./styles/worker.css";
import "./styles/live.css";
import "./styles/pages.css";
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
