/** What is set on CML for its license, besides the token: rules without a browser. */

import type { LicenseTerms } from "../../generated/api";

export type ProductLicense = NonNullable<LicenseTerms["product_license"]>;

/** CML's names of its licenses, and what people call them. */
export const PRODUCTS: readonly { readonly value: ProductLicense; readonly label: string }[] = [
  { value: "CML_Enterprise", label: "Enterprise" },
  { value: "CML_Education", label: "Education" },
  { value: "CML_Personal", label: "Personal" },
  { value: "CML_Personal40", label: "Personal, 40 nodes" },
  { value: "CML_Internal", label: "Internal" },
  { value: "CML_NotForResale", label: "Not for resale" },
];

/** The fields of the form as they were typed. */
export interface TermsForm {
  readonly product: string;
  readonly nodes: string;
  readonly server: string;
  readonly proxyHost: string;
  readonly proxyPort: string;
}

export function formOf(terms: LicenseTerms): TermsForm {
  return {
    product: terms.product_license ?? "",
    nodes: terms.node_count?.toString() ?? "",
    server: terms.ssms_url ?? "",
    proxyHost: terms.proxy_host ?? "",
    proxyPort: terms.proxy_port?.toString() ?? "",
  };
}

/** What the form says; null is left as CML has it. */
export function termsOf(form: TermsForm): LicenseTerms {
  return {
    product_license: PRODUCTS.find(({ value }) => value === form.product)?.value ?? null,
    node_count: numberIn(form.nodes),
    ssms_url: textIn(form.server),
    proxy_host: textIn(form.proxyHost),
    proxy_port: numberIn(form.proxyPort),
  };
}

/** What is wrong with the form, for the person who fills it in; null if nothing is. */
export function termsProblem(form: TermsForm): string | null {
  const nodes = numberIn(form.nodes);
  if (nodes !== null && !(Number.isInteger(nodes) && nodes >= 0)) return "More nodes: enter a whole number.";
  if (textIn(form.server) !== null && !/^https?:\/\/[^\s@]+$/.test(form.server.trim()))
    return "License server: enter a URL that begins with https:// or http://, without a login.";
  const port = numberIn(form.proxyPort);
  if (port !== null && !(Number.isInteger(port) && port >= 1 && port <= 65_535))
    return "Proxy port: enter a number from 1 to 65535.";
  if ((textIn(form.proxyHost) === null) !== (port === null)) return "A proxy needs a host and a port.";
  return null;
}

/** The terms in a few words; empty if there are none. */
export function termsText(terms: LicenseTerms): string {
  const { product, nodes, server, proxyHost, proxyPort } = formOf(terms);
  const label = PRODUCTS.find(({ value }) => value === product)?.label ?? "";
  const said = [
    label,
    nodes === "" ? "" : `${nodes} more nodes`,
    server === "" ? "" : `from ${server}`,
    proxyHost === "" ? "" : `through ${[proxyHost, proxyPort].filter((part) => part !== "").join(":")}`,
  ];
  return said.filter((part) => part !== "").join(", ");
}

function textIn(typed: string): string | null {
  return typed.trim() === "" ? null : typed.trim();
}

function numberIn(typed: string): number | null {
  return typed.trim() === "" ? null : Number(typed);
}
