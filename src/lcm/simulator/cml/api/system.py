"""The host and the software on it."""

from typing import Any, Final

from lcm.simulator.cml.api.routing import Call, Route
from lcm.simulator.cml.refusal import Refused


def system_information(call: Call) -> dict[str, Any]:
    return {
        "version": call.server.version.with_build,
        "ready": call.server.is_ready(call.now),
        "allow_ssh_pubkey_auth": False,
        "oui": "52:54:00:00:00:00",
    }


def system_stats(call: Call) -> dict[str, Any]:
    return call.server.system_stats(call.now)


def system_health(call: Call) -> dict[str, Any]:
    """Others than administrators get less detail: no compute hosts."""
    server = call.server
    is_ready = server.is_ready(call.now)
    compute = {
        "kvm_vmx_enabled": server.instance.has_kvm,
        "enough_cpus": True,
        "lld_connected": is_ready,
        "lld_synced": is_ready,
        "libvirt": True,
        "fabric": True,
        "device_mux": True,
        "refplat_images_available": True,
        "docker_shim": True,
        "valid": is_ready,
        "admission_state": "READY" if is_ready else "ONLINE",
        "is_controller": True,
        "hostname": "cml-controller",
    }
    return {
        "valid": is_ready,
        "computes": {server.compute_id: compute} if call.user.admin else {},
        "is_licensed": server.licensing.is_licensed(call.now),
        "is_enterprise": server.licensing.is_enterprise,
        "controller": {"core_connected": True, "nodes_loaded": True, "images_loaded": True, "valid": True},
    }


def compute_hosts(call: Call) -> list[dict[str, Any]]:
    server = call.server
    return [
        {
            "id": server.compute_id,
            "hostname": "cml-controller",
            "server_address": "fd00::1",
            "is_connector": True,
            "is_simulator": True,
            "is_connected": server.is_ready(call.now),
            "is_synced": server.is_ready(call.now),
            "admission_state": "READY" if server.is_ready(call.now) else "ONLINE",
            "node_counts": {
                "deployed": sum(bool(node.times) or node.is_running for node in server.labs.nodes()),
                "running": sum(node.is_running for node in server.labs.nodes()),
                "orphans": 0,
            },
            "nodes": [node.id for node in server.labs.nodes() if node.is_running],
        }
    ]


def maintenance_mode(call: Call) -> dict[str, Any]:
    return {"maintenance_mode": call.server.is_in_maintenance, "notice": None, "resolved_notice": None}


def set_maintenance_mode(call: Call) -> dict[str, Any]:
    call.need_admin()
    requested = call.fields()
    if "maintenance_mode" in requested:
        call.server.is_in_maintenance = bool(requested["maintenance_mode"])
        call.server.telemetry.record("maintenance_state_change", call.now, {})
    return maintenance_mode(call)


def nothing(call: Call) -> list[Any]:
    """Notices and external connectors: there are none."""
    return []


def telemetry(call: Call) -> dict[str, Any]:
    opt_in = call.server.opt_in
    if call.server.version.is_2_10:
        shown = {None: "unset", True: "accepted", False: "declined"}[opt_in]
        return {"opt_in": shown, "show_modal": opt_in is None}
    return {"opt_in": opt_in, "show_modal": opt_in is None}


def set_telemetry(call: Call) -> dict[str, Any]:
    call.need_admin()
    given = call.fields().get("opt_in")
    known = {
        None: None,
        True: True,
        False: False,
        "unset": None,
        "accepted": True,
        "declined": False,
    }
    if isinstance(given, str):
        given = given.lower()
    if not isinstance(given, str | bool | None) or given not in known:
        raise Refused(400, "Bad request: unknown opt_in")
    call.server.opt_in = known[given]
    call.server.telemetry.is_off = known[given] is False
    return telemetry(call)


def telemetry_events(call: Call) -> list[dict[str, Any]]:
    return call.server.telemetry.events()


def diagnostics(call: Call) -> Any:
    call.need_admin()
    server, category = call.server, call.names["category"]
    answers: dict[str, Any] = {
        "computes": lambda: {server.compute_id: {"identifier": "cml-controller", "statistics": {}}},
        "labs": lambda: {lab.id: {"created": lab.created, "state": lab.state} for lab in server.labs.all()},
        "lab_events": dict,
        "node_launch_queue": lambda: [node.id for node in server.labs.nodes() if node.state == "QUEUED"],
        "services": dict,
        "node_definitions": dict,
        "user_list": lambda: [
            {"user_id": user.id, "username": user.username, "is_online": False}
            for user in server.accounts.users.values()
        ],
        "licensing": lambda: {"quota": None, "started": 0},
        "startup_scheduler": dict,
    }
    if category not in answers:
        raise Refused(404, f"Diagnostics category not found: {category}")
    return answers[category]()


OPEN_ROUTES: Final[tuple[Route, ...]] = (
    ("GET", "system_information", system_information),
    ("GET", "system/maintenance_mode", maintenance_mode),
)

ROUTES: Final[tuple[Route, ...]] = (
    ("GET", "system_stats", system_stats),
    ("GET", "system_health", system_health),
    ("GET", "system/compute_hosts", compute_hosts),
    ("PATCH", "system/maintenance_mode", set_maintenance_mode),
    ("GET", "system/notices", nothing),
    ("GET", "system/external_connectors", nothing),
    ("GET", "telemetry", telemetry),
    ("PUT", "telemetry", set_telemetry),
    ("GET", "telemetry/events", telemetry_events),
    ("GET", "diagnostics/{category}", diagnostics),
)
