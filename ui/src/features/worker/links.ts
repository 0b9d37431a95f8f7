/** Where a worker and its labs are outside LCM: the pages of CML and of the AWS console. */

import type { WorkerView } from "../../generated/api";

type Place = Pick<WorkerView, "status" | "cml_ready" | "public_ip" | "ec2_instance_id" | "aws_region">;

/** Why CML's pages cannot be opened now; null if they can. */
export function cmlClosedReason({ status, cml_ready, public_ip }: Place): string | null {
  if (status === "terminated") return "The worker is terminated.";
  if (!cml_ready) return "CML is not ready yet.";
  if (public_ip === null) return "The worker has no public address.";
  return isLoopback(public_ip) ? "A simulated CML has an API but no pages." : null;
}

function isLoopback(address: string): boolean {
  return address.startsWith("127.");
}

/** The page of CML, or of one of its labs; null while there is none. */
export function cmlPage(worker: Place, labId?: string): string | null {
  if (cmlClosedReason(worker) !== null) return null;
  const lab = labId === undefined ? "" : `lab/${encodeURIComponent(labId)}`;
  return `https://${worker.public_ip}/${lab}`;
}

/** The instance in the AWS console; null before it is launched. */
export function consolePage({ ec2_instance_id: id, aws_region: region }: Place): string | null {
  if (id === null) return null;
  const query = `region=${encodeURIComponent(region)}#InstanceDetails:instanceId=${encodeURIComponent(id)}`;
  return `https://${encodeURIComponent(region)}.console.aws.amazon.com/ec2/home?${query}`;
}
