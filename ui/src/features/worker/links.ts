/** Where a worker and its labs are outside LCM: the pages of CML and of the AWS console. */

import type { CmlPlace, WorkerView } from "../../generated/api";

type Place = Pick<WorkerView, "status" | "cml_ready" | "public_ip" | "private_ip" | "ec2_instance_id" | "aws_region">;

const HTTPS = 443;

/** Why CML's pages cannot be opened now; null if they can. */
export function cmlClosedReason(worker: Place, place: CmlPlace): string | null {
  if (worker.status === "terminated") return "The worker is terminated.";
  if (!worker.cml_ready) return "CML is not ready yet.";
  const address = addressOf(worker, place);
  if (address === null) return "The worker has no address yet.";
  return isLoopback(address) ? "A simulated CML has an API but no pages." : null;
}

function addressOf({ public_ip, private_ip }: Place, { uses_private_ip }: CmlPlace): string | null {
  return uses_private_ip ? private_ip : (public_ip ?? private_ip);
}

function isLoopback(address: string): boolean {
  return address.startsWith("127.");
}

/** The page of CML, or of one of its labs; null while there is none. */
export function cmlPage(worker: Place, place: CmlPlace, labId?: string): string | null {
  if (cmlClosedReason(worker, place) !== null) return null;
  const lab = labId === undefined ? "" : `lab/${encodeURIComponent(labId)}`;
  const port = place.port === HTTPS ? "" : `:${place.port}`;
  return `https://${addressOf(worker, place)}${port}/${lab}`;
}

/** The instance in the AWS console; null before it is launched. */
export function consolePage({ ec2_instance_id: id, aws_region: region }: Place): string | null {
  if (id === null) return null;
  const query = `region=${encodeURIComponent(region)}#InstanceDetails:instanceId=${encodeURIComponent(id)}`;
  return `https://${encodeURIComponent(region)}.console.aws.amazon.com/ec2/home?${query}`;
}
