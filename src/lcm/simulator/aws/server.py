"""Wires the AWS process: moto, the instance model and the control endpoint behind one port.

Imports moto, so it is imported after the environment that moto reads is set.
"""

from collections.abc import Callable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import Client

from lcm.simulator.aws import moto_cloudwatch, moto_ec2
from lcm.simulator.aws.addresses import SUBNETS
from lcm.simulator.aws.config import AwsConfig, AwsReady
from lcm.simulator.aws.control import Control
from lcm.simulator.aws.front import Front
from lcm.simulator.aws.instances import SimulatedInstances
from lcm.simulator.aws.measurements import Subject
from lcm.simulator.aws.state import AwsState
from lcm.simulator.pace import steady_unix_time


def serve(config: AwsConfig, announce: Callable[[AwsReady], None]) -> None:
    """Announce once everything answers at full speed, then serve for ever."""
    view = moto_ec2.MotoInstances()
    instances = SimulatedInstances(pace=config.pace, delays=config.delays, view=view, now=steady_unix_time)
    regions = [moto_ec2.furnish(region) for region in SUBNETS]
    moto_ec2.install(instances, view, {region.region: region.subnet_id for region in regions})

    def subject(instance_id: str) -> Subject | None:
        instance = instances.running(instance_id)
        if instance is None or instance.running_since is None:
            return None
        return Subject(config.pace.seed, view.describe(instance).private_ip, instance.running_since)

    moto_cloudwatch.install(subject)
    aws: Any = DomainDispatcherApplication(create_backend_app)
    for region in SUBNETS:
        _warm_up(aws, region)

    state = AwsState(instances, view)
    by_name = {region.region: region for region in regions}

    def launch(region: str, instance_type: str, tags: dict[str, str]) -> str:
        if region not in by_name:
            raise ValueError(f"there is no region {region}")
        return moto_ec2.launch(by_name[region], instance_type, tags)

    front: Any = Front(state, aws=aws, control=Control(state, launch))
    server = make_server(config.host, config.port, front, threaded=True, request_handler=QuietHandler)
    announce(AwsReady(port=server.server_port, regions=regions))
    server.serve_forever()


class QuietHandler(WSGIRequestHandler):
    """Logs nothing, and closes the connection when the application gives no answer."""

    def log(self, *_: Any) -> None:
        pass

    def connection_dropped(self, error: BaseException, environ: dict[str, Any] | None = None) -> None:
        self.close_connection = True


def _warm_up(aws: Any, region: str) -> None:
    """Trigger moto's first answers, which take seconds, before a client waits for them."""
    scope = f"Credential=warm-up/20260101/{region}/ec2/aws4_request"
    for operation in ("DescribeInstances", "DescribeImages"):
        Client(aws).post(
            "/",
            data={"Action": operation, "Version": "2016-11-15"},
            headers={"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"},
        )
