/** What CML reports of itself, as text for users; null if it has reported nothing yet. */

import type { WorkerView } from "../../generated/api";

export function cmlHealthText({ cml_health: health }: WorkerView): string | null {
  if (health === null) return null;
  if (health.failing.length > 0) return `failing: ${health.failing.join(", ")}`;
  if (health.valid === null) return "unknown";
  return health.valid ? "healthy" : "not healthy";
}

export function cmlLicenseText({ cml_license: license }: WorkerView): string | null {
  if (license === null) return null;
  const parts = [license.product_license, license.registration_status, license.authorization_status];
  return parts.filter((part) => part !== null).join(", ") || "unknown";
}

export function cmlSystemText({ cml_system_info: info }: WorkerView): string | null {
  const facts = Object.entries(info).filter(([, value]) => value !== null);
  return facts.length > 0 ? facts.map(([name, value]) => `${name} ${value}`).join(", ") : null;
}
