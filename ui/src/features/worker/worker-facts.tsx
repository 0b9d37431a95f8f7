/** What is recorded of a worker. */

import type { ComponentChildren } from "preact";
import { templates } from "../../app/store";
import type { WorkerView } from "../../generated/api";
import { Copyable } from "../../kit/copyable";
import { formatUsd } from "../../kit/format";
import { Glyph } from "../../kit/icons";
import { Ago } from "../../kit/time";
import { CmlVersion } from "../fleet/worker-row";
import { cmlHealthText, cmlLicenseText, cmlSystemText } from "./cml-facts";
import { consolePage } from "./links";

export function WorkerFacts({ worker }: { worker: WorkerView }) {
  const template = templates.value.find((candidate) => candidate.name === worker.template_name);
  const tags = Object.entries(worker.tags);
  return (
    <dl class="facts">
      <Fact label="Instance">
        {worker.ec2_instance_id !== null && (
          <>
            <Copyable text={worker.ec2_instance_id} />
            <a class="open-outside" href={consolePage(worker) ?? ""} target="_blank" rel="noreferrer">
              AWS console <Glyph name="external" />
            </a>
          </>
        )}
      </Fact>
      <Fact label="Template">
        {worker.template_name}
        {worker.instance_type !== null && <span class="fact-aside">{worker.instance_type}</span>}
      </Fact>
      <Fact label="Price">
        {template !== undefined && (
          <>
            {formatUsd(template.usd_per_hour)} <span class="fact-aside">per hour of compute</span>
          </>
        )}
      </Fact>
      <Fact label="Region">{worker.aws_region}</Fact>
      <Fact label="CML">{(worker.cml_version !== null || worker.cml_ready) && <CmlVersion worker={worker} />}</Fact>
      <Fact label="CML health">{cmlHealthText(worker)}</Fact>
      <Fact label="CML license">{cmlLicenseText(worker)}</Fact>
      <Fact label="CML system">{cmlSystemText(worker)}</Fact>
      <Fact label="CML login">{worker.cml_username ?? "the fleet's"}</Fact>
      <Fact label="Labs running">{worker.labs_count !== null && String(worker.labs_count)}</Fact>
      <Fact label="Public address">{worker.public_ip !== null && <Copyable text={worker.public_ip} />}</Fact>
      <Fact label="Private address">{worker.private_ip !== null && <Copyable text={worker.private_ip} />}</Fact>
      <Fact label="AMI">
        {worker.ami_id !== null && (
          <>
            {worker.ami_name} <span class="fact-aside mono">{worker.ami_id}</span>
          </>
        )}
      </Fact>
      <Fact label="Created">
        <Ago at={worker.created_at} />
        <span class="fact-aside">by {worker.created_by}</span>
      </Fact>
      <Fact label="Updated">
        <Ago at={worker.updated_at} />
      </Fact>
      <Fact label="Tags">
        {tags.length > 0 &&
          tags.map(([key, value]) => (
            <span key={key} class="tag">
              {key}={value}
            </span>
          ))}
      </Fact>
    </dl>
  );
}

function Fact({ label, children }: { label: string; children: ComponentChildren }) {
  const isAbsent = children === null || children === false;
  return (
    <div class="fact">
      <dt>{label}</dt>
      <dd>{isAbsent ? <span class="absent">—</span> : children}</dd>
    </div>
  );
}
