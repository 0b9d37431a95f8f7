"""The API is what its OpenAPI document says: generated requests, no 5xx, no undocumented answer."""

import asyncio
from random import Random
from typing import Any

import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance, unsupported_method

from lcm.control_plane.access.identity import Identity
from lcm.control_plane.access.rate_limit import Buckets
from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.api.app import build_app, openapi_document
from lcm.control_plane.api.operations import plane_operations
from lcm.control_plane.api.services import Services
from lcm.control_plane.commands.claim_leadership import claim_leadership
from lcm.control_plane.replication.publisher import Publisher
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.streaming.hub import EventHub
from lcm.core.clock import SystemClock
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.telemetry import Telemetry
from lcm.rest.schemas import LeadershipClaim
from lcm.web.operations import MetricsPage
from support.control_plane import control_plane_over
from support.fleet import TEMPLATES

HEADERS = {
    "Authorization": "Bearer admin-key",
    "X-API-Key": "controller-key",
    "X-LCM-Service": "worker-controller",
    "X-LCM-Epoch": "1",
}

EXCLUDED = [
    ignored_auth,  # test_access.py asks every route with every role
    unsupported_method,
    positive_data_acceptance,  # a well-formed name may still be of a template or region nobody configured
]

clock, ids, store = SystemClock(), RandomIds(Random(1)), MemoryStore()
health = Health(clock)
publisher = Publisher(store, MemoryKv(clock, ids), clock=clock, health=health)
publisher.is_behind = False
plane = control_plane_over(store, clock=clock, ids=ids, publisher=publisher)
asyncio.run(plane.records.templates.seed(yaml.safe_load(TEMPLATES.read_text())))
leader = LeadershipClaim(service="worker-controller", cluster_id="etcd", revision=1, instance_id="a")
asyncio.run(claim_leadership(plane.records, leader))
app = build_app(
    Services(
        plane,
        EventHub(clock, ids, plane.caches.worker_cache),
        Identity(AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key"), store, clock),
    ),
    plane_operations(health, MetricsPage(Telemetry(), clock), publisher),
    Buckets(clock, per_second=1e6, burst=1_000_000),
)
whole = schemathesis.openapi.from_dict(openapi_document())
whole.app = app
schema = whole.exclude(path=["/api/events/stream", "/api/internal/peers/feed"])  # they never end


@schema.parametrize()
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@pytest.mark.filterwarnings("ignore")
def test_an_operation_answers_as_documented_whatever_it_is_sent(case: schemathesis.Case[Any]) -> None:
    case.call_and_validate(headers=HEADERS, excluded_checks=EXCLUDED)
