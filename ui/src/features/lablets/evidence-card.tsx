/** What was kept of the lab at its end. */

import * as api from "../../app/lablet-api";
import type { LabletSessionView } from "../../generated/api";
import { formatBytes } from "../../kit/format";
import { Glyph } from "../../kit/icons";
import { Ago } from "../../kit/time";

export function EvidenceCard({ session: { id, evidence } }: { session: LabletSessionView }) {
  if (evidence.length === 0) return null;
  return (
    <section class="card" aria-label="Evidence">
      <h2>
        Evidence <span class="count">{evidence.length}</span>
      </h2>
      <ul class="evidence">
        {evidence.map(({ n, kind, at, bytes, sha256 }) => (
          <li key={n}>
            <span>
              {kind === "configs" ? "Topology with running configurations" : "Topology"}
              <span class="evidence-about" title={`SHA-256 ${sha256}`}>
                {formatBytes(bytes)} · <Ago at={at} />
              </span>
            </span>
            <a
              class="button button-small"
              href={api.evidenceFile(id, n)}
              download
              aria-label={`Download evidence ${n}`}
            >
              <Glyph name="download" />
              Download
            </a>
          </li>
        ))}
      </ul>
      <p class="field-note">It may hold passwords that people gave their nodes.</p>
    </section>
  );
}
