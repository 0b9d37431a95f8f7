"""Labs: created, imported, read, started, stopped, wiped, removed."""

from datetime import UTC, datetime
from typing import Any, Final

from lcm.simulator.cml.accounts import User
from lcm.simulator.cml.api.routing import Answer, Call, Route
from lcm.simulator.cml.lab import Lab
from lcm.simulator.cml.load import lab_stats
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.cml.times import shown
from lcm.simulator.cml.topology import import_file, read_file, topology, write_file
from lcm.simulator.cml.version import CmlVersion

TEXTS: Final[tuple[str, ...]] = ("title", "description", "notes")


def lab_object(lab: Lab, owner: User | None, version: CmlVersion) -> dict[str, Any]:
    """A lab as every call shows it; the release decides on some of the keys."""
    body: dict[str, Any] = {
        "id": lab.id,
        "created": shown(lab.created),
        "modified": shown(lab.modified),
        "lab_title": lab.title,
        "lab_description": lab.description,
        "lab_notes": lab.notes,
        "owner": lab.owner_id,
        "owner_username": owner.username if owner else "",
        "owner_fullname": owner.fullname if owner else "",
        "state": lab.state,
        "node_count": len(lab.nodes),
        "link_count": len(lab.links),
        "groups": lab.associations["groups"],
    }
    if version.has_associations:
        body["effective_permissions"] = ["lab_exec", "lab_view", "lab_edit", "lab_admin"]
    if version.is_2_10:
        body |= {"autostart": lab.autostart, "node_staging": lab.node_staging}
    return body


def list_labs(call: Call) -> list[str]:
    """The caller's own; with `show_all` all that the caller may see."""
    if call.flag("show_all"):
        return [lab.id for lab in _visible(call)]
    return [lab.id for lab in call.server.labs.all() if lab.owner_id == call.user.id]


def create_lab(call: Call) -> dict[str, Any]:
    requested = call.fields(default={})
    texts = _texts(requested)
    owner_id = _owner(call, requested) or call.user.id
    texts.setdefault("title", datetime.fromtimestamp(call.now, UTC).strftime("Lab at %a %H:%M %p"))
    lab = call.server.labs.create(call.now, owner_id=owner_id, **texts)
    _set_objects(lab, requested)
    return _shown(call, lab)


def import_lab(call: Call) -> dict[str, Any]:
    file = read_file(call.query.body)
    title = call.query.parameters.get("title") or file.lab.title or "Imported lab"
    lab = import_file(call.server.labs, file, call.now, owner_id=call.user.id, title=title)
    call.server.telemetry.record("import_lab", call.now, {"lab_id": lab.id, "user_id": call.user.id})
    return {"id": lab.id, "warnings": []}


def get_lab(call: Call) -> dict[str, Any]:
    return _shown(call, call.lab)


def change_lab(call: Call) -> dict[str, Any]:
    lab, requested = call.lab, call.fields()
    changes = _texts(requested)
    owner_id = _owner(call, requested)
    if owner_id is not None:
        changes["owner"] = owner_id
    call.server.labs.modify(lab, call.now, **changes)
    _set_objects(lab, requested)
    return _shown(call, lab)


def remove_lab(call: Call) -> None:
    call.server.labs.delete(call.lab)


def state(call: Call) -> str:
    return call.lab.state


def start(call: Call) -> None:
    call.server.labs.start(call.lab, call.now, call.user.id)


def stop(call: Call) -> None:
    call.server.labs.stop(call.lab, call.now, call.user.id)


def wipe(call: Call) -> None:
    call.server.labs.wipe(call.lab, call.now, call.user.id)


def check_if_converged(call: Call) -> bool:
    return call.lab.has_converged


def lab_element_state(call: Call) -> dict[str, dict[str, str]]:
    lab = call.lab
    return {
        "nodes": {node.id: node.state for node in lab.nodes.values()},
        "links": {link.id: link.state for link in lab.links.values()},
        "interfaces": {interface.id: interface.state for interface in lab.interfaces.values()},
    }


def simulation_stats(call: Call) -> dict[str, Any]:
    return lab_stats(call.lab, call.now)


def get_topology(call: Call) -> dict[str, Any]:
    return topology(call.lab, call.flag("exclude_configurations"))


def download(call: Call) -> Answer:
    lab = call.lab
    call.server.telemetry.record("export_lab", call.now, {"lab_id": lab.id, "user_id": call.user.id})
    return Answer(200, write_file(lab).encode(), "application/x-yaml")


def tile(call: Call) -> dict[str, Any]:
    return _tile(call, call.lab)


def populate_lab_tiles(call: Call) -> dict[str, Any]:
    return {"lab_tiles": {lab.id: _tile(call, lab) for lab in _visible(call)}}


def events(call: Call) -> list[dict[str, Any]]:
    return list(call.lab.events)


def layer3_addresses(call: Call) -> dict[str, Any]:
    """Simulated ports carry no traffic: names, no addresses."""
    return {
        node.id: {"name": node.label, "interfaces": {}} for node in call.lab.nodes.values() if node.is_running
    }


def resource_pools(call: Call) -> list[str]:
    """Those on which its nodes run."""
    return sorted({node.resource_pool for node in call.lab.nodes.values() if node.resource_pool})


def no_ids(call: Call) -> list[str]:
    """Connector mappings: a lab has none."""
    call.lab  # noqa: B018 - refuses unknown labs
    return []


def associations(call: Call) -> dict[str, list[Any]]:
    return call.lab.associations


def change_associations(call: Call) -> dict[str, list[Any]]:
    lab, requested = call.lab, call.fields()
    for kind in ("groups", "users"):
        if isinstance(requested.get(kind), list):
            lab.associations[kind] = requested[kind]
    return lab.associations


def pyats_testbed(call: Call) -> Answer:
    lab = call.lab
    text = f"testbed:\n  name: {lab.title}\ndevices: {{}}\n"
    return Answer(200, text.encode(), "application/x-yaml")


def bootstrap(call: Call) -> None:
    """Since 2.9: a configuration for every node that has none."""
    lab = call.lab
    if not call.server.version.has_associations:
        raise Refused(405, "Method Not Allowed")
    _configure(lab)


def build_configurations(call: Call) -> None:
    """What `bootstrap` was called before."""
    _configure(call.server.visible_lab(call.user, call.query.parameters.get("lab_id", "")))


def _configure(lab: Lab) -> None:
    for node in lab.nodes.values():
        if node.definition.serial_ports and not node.configuration:
            node.configuration = [{"name": "Main", "content": f"hostname {node.label}\n"}]


def _visible(call: Call) -> list[Lab]:
    return [lab for lab in call.server.labs.all() if call.user.admin or lab.owner_id == call.user.id]


def _shown(call: Call, lab: Lab) -> dict[str, Any]:
    return lab_object(lab, call.server.accounts.users.get(lab.owner_id), call.server.version)


def _tile(call: Call, lab: Lab) -> dict[str, Any]:
    whole = topology(lab, exclude=True)
    return _shown(call, lab) | {"topology": {"nodes": whole["nodes"], "links": whole["links"]}}


def _texts(requested: dict[str, Any]) -> dict[str, str]:
    texts: dict[str, str] = {name: requested[name] for name in TEXTS if name in requested}
    if not all(isinstance(text, str) for text in texts.values()):
        raise Refused(400, "Bad request: title, description and notes are texts")
    return texts


def _owner(call: Call, requested: dict[str, Any]) -> str | None:
    if requested.get("owner") is None:
        return None
    call.need_admin()
    return call.server.accounts.user(str(requested["owner"])).id


def _set_objects(lab: Lab, requested: dict[str, Any]) -> None:
    for name in ("autostart", "node_staging"):
        if isinstance(requested.get(name), dict):
            setattr(lab, name, getattr(lab, name) | requested[name])
    if isinstance(requested.get("associations"), dict):
        lab.associations |= requested["associations"]
    if isinstance(requested.get("groups"), list):
        lab.associations["groups"] = requested["groups"]


ROUTES: Final[tuple[Route, ...]] = (
    ("GET", "labs", list_labs),
    ("POST", "labs", create_lab),
    ("POST", "import", import_lab),
    ("GET", "populate_lab_tiles", populate_lab_tiles),
    ("GET", "build_configurations", build_configurations),
    ("GET", "labs/{lab_id}", get_lab),
    ("PATCH", "labs/{lab_id}", change_lab),
    ("DELETE", "labs/{lab_id}", remove_lab),
    ("GET", "labs/{lab_id}/state", state),
    ("PUT", "labs/{lab_id}/start", start),
    ("PUT", "labs/{lab_id}/stop", stop),
    ("PUT", "labs/{lab_id}/wipe", wipe),
    ("GET", "labs/{lab_id}/check_if_converged", check_if_converged),
    ("GET", "labs/{lab_id}/lab_element_state", lab_element_state),
    ("GET", "labs/{lab_id}/simulation_stats", simulation_stats),
    ("GET", "labs/{lab_id}/topology", get_topology),
    ("GET", "labs/{lab_id}/download", download),
    ("GET", "labs/{lab_id}/tile", tile),
    ("GET", "labs/{lab_id}/events", events),
    ("GET", "labs/{lab_id}/layer3_addresses", layer3_addresses),
    ("GET", "labs/{lab_id}/resource_pools", resource_pools),
    ("GET", "labs/{lab_id}/connector_mappings", no_ids),
    ("GET", "labs/{lab_id}/associations", associations),
    ("PATCH", "labs/{lab_id}/associations", change_associations),
    ("GET", "labs/{lab_id}/pyats_testbed", pyats_testbed),
    ("PUT", "labs/{lab_id}/bootstrap", bootstrap),
)
