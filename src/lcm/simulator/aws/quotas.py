"""Service Quotas, as far as a launch needs it: moto has the quotas of other services only."""

from typing import Any, Final

import msgspec
from werkzeug.wrappers import Request, Response

SERVICE: Final = "servicequotas"
"""As requests are signed for it."""
STANDARD_VCPUS: Final = "L-1216C47A"
CONTENT_TYPE: Final = "application/x-amz-json-1.1"


def answer(environ: dict[str, Any], vcpu_quota: float) -> Response:
    """The answer to GetServiceQuota; every other quota does not exist."""
    requested = msgspec.json.decode(Request(environ).get_data() or b"{}")
    if (requested.get("ServiceCode"), requested.get("QuotaCode")) != ("ec2", STANDARD_VCPUS):
        refusal = {"__type": "NoSuchResourceException", "Message": "The request failed: no such quota."}
        return Response(msgspec.json.encode(refusal), status=400, content_type=CONTENT_TYPE)
    quota = {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaCode": STANDARD_VCPUS,
        "QuotaName": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        "Value": vcpu_quota,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
    return Response(msgspec.json.encode({"Quota": quota}), content_type=CONTENT_TYPE)
