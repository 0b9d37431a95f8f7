/** The routes about settings: templates, discovery, tokens and browser sessions. */

import type {
  BrowserSession,
  BrowserSessions,
  DiscoveryView,
  NewToken,
  TemplateSource,
  TokenCreated,
  TokenList,
  TokenView,
  WorkerTemplate,
} from "../generated/api";
import { type Read, read, request } from "./api";

function templatePath(name: string): string {
  return `/api/worker-templates/${encodeURIComponent(name)}`;
}

export function readTemplate(name: string): Promise<Read<TemplateSource>> {
  return read(`${templatePath(name)}/source`);
}

export function changeTemplate(template: WorkerTemplate, name: string, tag: string): Promise<WorkerTemplate> {
  return request("PUT", templatePath(name), template, { ifMatch: tag });
}

export function revertTemplate(name: string, tag: string): Promise<WorkerTemplate> {
  return request("DELETE", `${templatePath(name)}/changes`, undefined, { ifMatch: tag });
}

export function readDiscovery(): Promise<Read<DiscoveryView>> {
  return read("/api/settings/discovery");
}

export function changeDiscovery(change: Partial<DiscoveryView>, tag: string): Promise<DiscoveryView> {
  return request("PATCH", "/api/settings/discovery", change, { ifMatch: tag });
}

export async function listTokens(): Promise<readonly TokenView[]> {
  return (await request<TokenList>("GET", "/api/tokens")).items;
}

export function createToken(token: NewToken): Promise<TokenCreated> {
  return request("POST", "/api/tokens", token);
}

export function revokeToken(id: string): Promise<void> {
  return request("DELETE", `/api/tokens/${encodeURIComponent(id)}`);
}

/** The browsers that are signed in as the user; those of all people only for admins. */
export async function listBrowsers(ofAllPeople: boolean): Promise<readonly BrowserSession[]> {
  return (await request<BrowserSessions>("GET", `/api/session/all?all_people=${ofAllPeople}`)).items;
}

/** Sign a person out of every browser. */
export function signOutPerson(principalId: string): Promise<void> {
  return request("DELETE", `/api/session/all?principal_id=${encodeURIComponent(principalId)}`);
}
