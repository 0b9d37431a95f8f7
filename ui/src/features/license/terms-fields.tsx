/** The fields of a license's terms; closed at first, because most licenses need none. */

import type { Signal } from "@preact/signals";
import { PRODUCTS, type TermsForm } from "./terms";

export function TermsFields({ form, isOpen }: { form: Signal<TermsForm>; isOpen: boolean }) {
  function change(part: Partial<TermsForm>): void {
    form.value = { ...form.value, ...part };
  }

  const { product, nodes, server, proxyHost, proxyPort } = form.value;
  return (
    <details class="more" open={isOpen || undefined}>
      <summary>Product, nodes and license server</summary>
      <p class="field-note">Set on CML before it registers. What is empty is left as CML has it.</p>
      <div class="field">
        <label for="license-product">Product</label>
        <select
          id="license-product"
          class="select"
          value={product}
          onChange={(event) => change({ product: event.currentTarget.value })}
        >
          <option value="">As CML has it</option>
          {PRODUCTS.map(({ value, label }) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      </div>
      <TextField id="license-nodes" label="More nodes" value={nodes} onChange={(text) => change({ nodes: text })} />
      <TextField
        id="license-server"
        label="License server"
        placeholder="https://"
        value={server}
        onChange={(text) => change({ server: text })}
      />
      <TextField
        id="license-proxy-host"
        label="Proxy host"
        value={proxyHost}
        onChange={(text) => change({ proxyHost: text })}
      />
      <TextField
        id="license-proxy-port"
        label="Proxy port"
        value={proxyPort}
        onChange={(text) => change({ proxyPort: text })}
      />
    </details>
  );
}

interface TextFieldProps {
  readonly id: string;
  readonly label: string;
  readonly value: string;
  readonly placeholder?: string;
  readonly onChange: (text: string) => void;
}

function TextField({ id, label, value, placeholder, onChange }: TextFieldProps) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        class="input mono"
        autocomplete="off"
        spellcheck={false}
        placeholder={placeholder ?? ""}
        value={value}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    </div>
  );
}
