"""What CloudWatch tells of simulated instances, through the real SDK."""

from datetime import UTC, datetime, timedelta
from typing import Any

from .conftest import SESSION


async def measured(info: Any, *instance_ids: str) -> dict[str, list[float]]:
    """The newest hour of every kind of value, for each instance."""
    metrics = (
        ("AWS/EC2", "CPUUtilization", "Average"),
        ("AWS/EC2", "NetworkIn", "Sum"),
        ("AWS/EC2", "EBSWriteBytes", "Sum"),
        ("CWAgent", "mem_used_percent", "Average"),
    )
    now = datetime.now(UTC)  # noqa: TID251 - CloudWatch is asked about real time
    queries = [
        {
            "Id": f"m{number}_{name.lower()}",
            "MetricStat": {
                "Metric": {
                    "Namespace": namespace,
                    "MetricName": name,
                    "Dimensions": [{"Name": "InstanceId", "Value": instance_id}],
                },
                "Period": 300,
                "Stat": statistic,
            },
        }
        for number, instance_id in enumerate(instance_ids)
        for namespace, name, statistic in metrics
    ]
    async with SESSION.create_client(
        "cloudwatch",
        region_name=info.regions[0].region,
        endpoint_url=info.aws_endpoint,
        aws_access_key_id="any",
        aws_secret_access_key="any",
    ) as client:
        answer = await client.get_metric_data(
            MetricDataQueries=queries, StartTime=now - timedelta(hours=1), EndTime=now
        )
    return {result["Id"]: result["Values"] for result in answer["MetricDataResults"]}


async def test_a_running_instance_is_measured_and_nobody_measures_its_memory(cloud: Any) -> None:
    instance = await cloud.running()
    values = await measured(cloud.info, instance["InstanceId"])
    assert 0 < values["m0_cpuutilization"][0] < 100
    assert values["m0_networkin"][0] > 0
    assert values["m0_ebswritebytes"][0] > 0
    assert values["m0_mem_used_percent"] == []


async def test_what_does_not_run_is_not_measured(cloud: Any) -> None:
    values = await measured(cloud.info, await cloud.terminated(), "i-00000000000000000")
    assert all(value == [] for value in values.values())
