/** The way back from the identity provider's page. */

export const PROVIDER_PAGE = "/api/session/oidc";

const REFUSALS: ReadonlyMap<string, string> = new Map([
  ["refused", "The identity provider did not sign you in, or it took more than ten minutes. Try again."],
  ["no-role", "Your account has no role in this LCM. Ask an administrator for one."],
  ["unavailable", "The identity provider does not answer. Try again later, or use an access token."],
  ["too-many", "Too many attempts. Wait a minute and try again."],
]);

/** Why the control plane did not sign the user in, or null; read once and removed from the address. */
export function takeRefusal(): string | null {
  const url = new URL(window.location.href);
  const reason = url.searchParams.get("sign_in");
  if (reason === null) return null;
  window.history.replaceState(null, "", `${url.pathname}${url.hash}`);
  return refusalOf(reason);
}

export function refusalOf(reason: string): string | null {
  return REFUSALS.get(reason) ?? null;
}
