/** The page of what can be changed at run time: templates, regions, discovery, the fleet's license, tokens and browsers. */

import type { ComponentChildren } from "preact";
import { usePolledAnswer } from "../../app/answer";
import { listRegions, listTemplates } from "../../app/api";
import { type OpenDialog, openDialog } from "../../app/commands";
import { me } from "../../app/people";
import { API_HREF } from "../../app/router";
import { denialFor } from "../../app/session";
import { listBrowsers, listTokens, readDiscovery, readTemplate } from "../../app/settings-api";
import type { BrowserSession, TokenView, WorkerTemplate } from "../../generated/api";
import { formatExact, formatUsd } from "../../kit/format";
import { Ago } from "../../kit/time";
import { FleetLicense } from "../license/fleet-license-setting";
import type { Operation } from "../worker/model";
import { settingsChanges } from "./settings";

const INTERVAL = { everyMs: 60_000, afterChangeMs: 0 };

export function SettingsPage() {
  return (
    <>
      <div class="page-head">
        <h1>Settings</h1>
        <a class="button" href={API_HREF}>
          API reference
        </a>
      </div>
      <p class="page-lead">What can be changed while LCM runs. Every change is in the audit log.</p>
      <FleetLicense />
      <Templates />
      <Discovery />
      <Regions />
      {denialFor("tokens") === null && <Tokens />}
      <Browsers />
    </>
  );
}

interface PartProps {
  readonly title: string;
  readonly problem: string | null;
  readonly button?: ComponentChildren;
  readonly children: ComponentChildren;
}

function Part({ title, problem, button, children }: PartProps) {
  return (
    <section class="settings-part" aria-label={title}>
      <div class="settings-head">
        <h2>{title}</h2>
        {button}
      </div>
      {problem !== null && (
        <p class="panel-note" role="status">
          {problem}
        </p>
      )}
      {children}
    </section>
  );
}

interface OpenButtonProps {
  readonly label: string;
  /** What it is about, where several buttons have the same label. */
  readonly about?: string;
  readonly operation: Operation;
  readonly dialog: OpenDialog;
}

function OpenButton({ label, about, operation, dialog }: OpenButtonProps) {
  const denial = denialFor(operation);
  return (
    <button
      type="button"
      class="button button-small"
      aria-label={about === undefined ? undefined : `${label.replace("…", "")} ${about}`}
      disabled={denial !== null}
      title={denial ?? ""}
      onClick={() => {
        openDialog.value = dialog;
      }}
    >
      {label}
    </button>
  );
}

interface ShownTemplate {
  readonly template: WorkerTemplate;
  readonly changed: readonly string[];
}

async function loadTemplates(): Promise<readonly ShownTemplate[]> {
  const names = (await listTemplates()).map(({ name }) => name);
  return (await Promise.all(names.map(readTemplate))).map(({ value }) => value);
}

function Templates() {
  const { value, problem } = usePolledAnswer("templates", loadTemplates, INTERVAL, settingsChanges);
  return (
    <Part title="Templates" problem={problem.value}>
      <ul class="audit">
        {value.value?.map(({ template, changed }) => (
          <li key={template.name} class="setting-line" data-template={template.name}>
            <span class="setting-name">
              {template.name}
              {template.default && <span class="role">default</span>}
              {!template.enabled && <span class="role">disabled</span>}
            </span>
            <span class="setting-about">
              {template.instance_type} · {template.cpu} CPU · {template.memory_gb} GB · {template.disk_gb} GB disk ·{" "}
              {formatUsd(template.usd_per_hour)} per hour
              {changed.length > 0 && <div>Changed here: {changed.join(", ")}</div>}
            </span>
            <OpenButton
              label="Edit…"
              about={template.name}
              operation="template"
              dialog={{ kind: "template", name: template.name, isChanged: changed.length > 0 }}
            />
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Discovery() {
  const { value, problem } = usePolledAnswer("discovery", readDiscovery, INTERVAL, settingsChanges);
  const settings = value.value?.value ?? null;
  return (
    <Part
      title="Discovery"
      problem={problem.value}
      button={<OpenButton label="Edit…" about="discovery" operation="discovery" dialog={{ kind: "discovery" }} />}
    >
      {settings !== null && (
        <dl class="settings-facts">
          <Fact name="On" value={settings.enabled === null ? null : String(settings.enabled)} />
          <Fact name="Regions" value={settings.regions?.join(", ") ?? null} />
          <Fact name="Tags" value={tagsText(settings.tag_filter)} />
          <Fact name="AMI" value={settings.ami_filter} />
        </dl>
      )}
    </Part>
  );
}

function tagsText(tags: Readonly<Record<string, string>> | null): string | null {
  if (tags === null) return null;
  return Object.entries(tags)
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");
}

function Fact({ name, value }: { name: string; value: string | null }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value ?? <span class="absent">as the worker controller is set</span>}</dd>
    </div>
  );
}

function Regions() {
  const { value, problem } = usePolledAnswer("regions", listRegions, INTERVAL, settingsChanges);
  return (
    <Part title="Regions" problem={problem.value}>
      <p class="field-note">
        {value.value?.map(({ name, is_default }) => (is_default ? `${name} (default)` : name)).join(", ")}
      </p>
      <p class="field-note">Regions are defined in the regions file of the worker controller.</p>
    </Part>
  );
}

function Tokens() {
  const { value, problem } = usePolledAnswer("tokens", listTokens, INTERVAL, settingsChanges);
  const tokens = value.value;
  return (
    <Part
      title="Tokens"
      problem={problem.value}
      button={<OpenButton label="New token…" operation="tokens" dialog={{ kind: "new-token" }} />}
    >
      {tokens?.length === 0 && <p class="field-note">No token yet, besides the keys of the first start.</p>}
      {tokens !== null && tokens.length > 0 && (
        <ul class="audit">
          {tokens.map((token) => (
            <Token key={token.id} token={token} />
          ))}
        </ul>
      )}
    </Part>
  );
}

function Token({ token }: { token: TokenView }) {
  return (
    <li class="setting-line" data-token={token.name}>
      <span class="setting-name">
        {token.name}
        <span class="role">{token.role}</span>
      </span>
      <span class="setting-about">
        by {token.created_by} <Ago at={token.created_at} /> ·{" "}
        {token.expires_at === null ? "never expires" : `expires ${formatExact(token.expires_at)}`} ·{" "}
        {token.last_used_at === null ? (
          "never used"
        ) : (
          <>
            used <Ago at={token.last_used_at} />
          </>
        )}
      </span>
      <OpenButton label="Revoke…" about={token.name} operation="tokens" dialog={{ kind: "revoke-token", token }} />
    </li>
  );
}

function Browsers() {
  // Who may make and revoke tokens may see and end the sessions of others.
  const isOfAll = denialFor("tokens") === null;
  const { value, problem } = usePolledAnswer(
    `browsers ${isOfAll}`,
    () => listBrowsers(isOfAll),
    INTERVAL,
    settingsChanges,
  );
  return (
    <Part
      title="Browsers"
      problem={problem.value}
      button={
        <OpenButton
          label="Sign out everywhere…"
          operation="sign-out-everywhere"
          dialog={{ kind: "sign-out-everywhere" }}
        />
      }
    >
      <ul class="audit">
        {value.value?.map((browser) => (
          <Browser key={browser.id} browser={browser} />
        ))}
      </ul>
    </Part>
  );
}

function Browser({ browser }: { browser: BrowserSession }) {
  return (
    <li class="setting-line" data-browser={browser.id}>
      <span class="setting-name">
        {browser.actor}
        {browser.is_current && <span class="role">this browser</span>}
      </span>
      <span class="setting-about">
        signed in <Ago at={browser.created_at} />
        {browser.last_used_at !== null && (
          <>
            {" "}
            · used <Ago at={browser.last_used_at} />
          </>
        )}
        {browser.expires_at !== null && ` · ends ${formatExact(browser.expires_at)}`}
      </span>
      {browser.principal_id !== me.value?.id && (
        <OpenButton
          label="Sign out…"
          about={browser.actor}
          operation="tokens"
          dialog={{ kind: "sign-out-person", browser }}
        />
      )}
    </li>
  );
}
