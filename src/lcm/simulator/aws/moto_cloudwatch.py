"""moto as CloudWatch's wire protocol, with values for the simulated instances.

Reaches into moto's private names, as `moto_ec2` does. Imported after the environment that moto reads
is set.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from moto.cloudwatch.models import CloudWatchBackend

from lcm.simulator.aws.measurements import DIMENSION, NAMESPACE, Subject, measure

Lookup = Callable[[str], Subject | None]
"""Finds an instance by its id; None unless it is running."""


def install(lookup: Lookup) -> None:
    """Answer `GetMetricData` for the metrics of EC2; moto answers everything else."""
    backend: Any = CloudWatchBackend
    backend.get_metric_data = _get_metric_data(backend.get_metric_data, lookup)


def _get_metric_data(original: Callable[..., Any], lookup: Lookup) -> Callable[..., Any]:
    def get_metric_data(
        self: Any,
        queries: list[dict[str, Any]],
        start_time: datetime,
        end_time: datetime,
        scan_by: str = "TimestampAscending",
    ) -> list[dict[str, Any]]:
        others = [query for query in queries if not _is_about_an_instance(query)]
        results = original(self, others, start_time, end_time, scan_by) if others else []
        for query in queries:
            if _is_about_an_instance(query) and query.get("ReturnData", True):
                results.append(_result(query, lookup, start_time, end_time, scan_by))
        return results

    return get_metric_data


def _is_about_an_instance(query: dict[str, Any]) -> bool:
    metric = query.get("MetricStat", {}).get("Metric", {})
    return metric.get("Namespace") == NAMESPACE and [
        dimension["Name"] for dimension in metric.get("Dimensions", [])
    ] == [DIMENSION]


def _result(
    query: dict[str, Any], lookup: Lookup, start: datetime, end: datetime, scan_by: str
) -> dict[str, Any]:
    wanted = query["MetricStat"]
    name, statistic = wanted["Metric"]["MetricName"], wanted["Stat"]
    subject = lookup(wanted["Metric"]["Dimensions"][0]["Value"])
    values = (
        list(
            measure(
                subject,
                name,
                statistic,
                start=start.timestamp(),
                end=end.timestamp(),
                period=float(wanted["Period"]),
            )
        )
        if subject is not None
        else []
    )
    if scan_by == "TimestampDescending":
        values.reverse()
    return {
        "id": query["Id"],
        "label": query.get("Label") or f"{name} {statistic}",
        "values": [measured.value for measured in values],
        "timestamps": [datetime.fromtimestamp(measured.at, UTC) for measured in values],
        "status_code": "Complete",
    }
