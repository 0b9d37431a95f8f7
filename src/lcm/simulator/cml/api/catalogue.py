"""Definitions of nodes and images, users, groups and resource pools."""

from typing import Any, Final

import msgspec
import yaml

from lcm.simulator.cml.accounts import User, group_object, user_object
from lcm.simulator.cml.api.routing import Answer, Call, Route
from lcm.simulator.cml.definitions import DEFINITIONS, image_definition, images, node_definition
from lcm.simulator.cml.refusal import Refused

# Definitions


def node_definitions(call: Call) -> list[dict[str, Any]]:
    return [node_definition(definition) for definition in DEFINITIONS.values()]


def simplified_node_definitions(call: Call) -> list[dict[str, Any]]:
    return [
        {
            "id": definition.id,
            "image_definitions": [definition.image] if definition.image else [],
            "general": node_definition(definition)["general"],
            "ui": node_definition(definition)["ui"],
        }
        for definition in DEFINITIONS.values()
    ]


def one_node_definition(call: Call) -> Any:
    definition = DEFINITIONS.get(call.names["definition_id"])
    if definition is None:
        raise Refused(404, f"Node definition not found: {call.names['definition_id']}")
    return _json_or_yaml(call, node_definition(definition))


def image_definitions(call: Call) -> list[dict[str, Any]]:
    return [image_definition(definition) for definition in images().values()]


def one_image_definition(call: Call) -> Any:
    definition = images().get(call.names["definition_id"])
    if definition is None:
        raise Refused(404, f"Image definition not found: {call.names['definition_id']}")
    return _json_or_yaml(call, image_definition(definition))


def images_of_node_definition(call: Call) -> list[dict[str, Any]]:
    definition = DEFINITIONS.get(call.names["definition_id"])
    if definition is None:
        raise Refused(404, f"Node definition not found: {call.names['definition_id']}")
    return [image_definition(definition)] if definition.image else []


def _json_or_yaml(call: Call, body: dict[str, Any]) -> Any:
    if call.flag("json"):
        return body
    return Answer(200, yaml.safe_dump(body, sort_keys=False).encode(), "application/x-yaml")


# Users


def users(call: Call) -> list[dict[str, Any]]:
    return [_user(call, user) for user in call.server.accounts.users.values()]


class UserFields(msgspec.Struct, frozen=True):
    """A new user."""

    username: str
    password: str
    admin: bool = False
    fullname: str = ""
    description: str = ""
    email: str = ""
    groups: list[str] = []


def create_user(call: Call) -> dict[str, Any]:
    call.need_admin()
    user = call.server.accounts.add_user(call.now, **msgspec.structs.asdict(call.read(UserFields)))
    return _user(call, user)


def one_user(call: Call) -> dict[str, Any]:
    return _user(call, call.server.accounts.user(call.names["user_id"]))


def change_user(call: Call) -> dict[str, Any]:
    user, requested = call.server.accounts.user(call.names["user_id"]), call.fields()
    if user.id != call.user.id:
        call.need_admin()
    for name in ("fullname", "description", "email"):
        if name in requested:
            setattr(user, name, str(requested[name]))
    if isinstance(requested.get("password"), dict):
        user.password = str(requested["password"].get("new_password", user.password))
    user.modified = call.now
    return _user(call, user)


def remove_user(call: Call) -> None:
    call.need_admin()
    call.server.accounts.remove_user(call.names["user_id"])


def user_id(call: Call) -> str:
    user = call.server.accounts.by_name(call.names["username"])
    if user is None:
        raise Refused(404, f"User not found: {call.names['username']}")
    return user.id


def _user(call: Call, user: User) -> dict[str, Any]:
    return user_object(user, [lab.id for lab in call.server.labs.all() if lab.owner_id == user.id])


# Groups


def groups(call: Call) -> list[dict[str, Any]]:
    return [group_object(group) for group in call.server.accounts.groups.values()]


class GroupFields(msgspec.Struct, frozen=True):
    """A new group."""

    name: str
    description: str = ""
    members: list[str] = []
    associations: list[Any] = []


def create_group(call: Call) -> dict[str, Any]:
    call.need_admin()
    group = call.server.accounts.add_group(call.now, **msgspec.structs.asdict(call.read(GroupFields)))
    return group_object(group)


def one_group(call: Call) -> dict[str, Any]:
    return group_object(call.server.accounts.group(call.names["group_id"]))


def change_group(call: Call) -> dict[str, Any]:
    call.need_admin()
    group, requested = call.server.accounts.group(call.names["group_id"]), call.fields()
    for name in ("name", "description"):
        if name in requested:
            setattr(group, name, str(requested[name]))
    for name in ("members", "associations"):
        if isinstance(requested.get(name), list):
            setattr(group, name, requested[name])
    group.modified = call.now
    return group_object(group)


def remove_group(call: Call) -> None:
    call.need_admin()
    del call.server.accounts.groups[call.server.accounts.group(call.names["group_id"]).id]


def group_id(call: Call) -> str:
    for group in call.server.accounts.groups.values():
        if group.name == call.names["group_name"]:
            return group.id
    raise Refused(404, f"Group not found: {call.names['group_name']}")


def resource_pools(call: Call) -> list[Any]:
    """There are none."""
    return []


CREATED: Final = frozenset({create_user, create_group})
"""Answered with 201."""

ROUTES: Final[tuple[Route, ...]] = (
    ("GET", "node_definitions", node_definitions),
    ("GET", "simplified_node_definitions", simplified_node_definitions),
    ("GET", "node_definitions/{definition_id}", one_node_definition),
    ("GET", "node_definitions/{definition_id}/image_definitions", images_of_node_definition),
    ("GET", "image_definitions", image_definitions),
    ("GET", "image_definitions/{definition_id}", one_image_definition),
    ("GET", "users", users),
    ("POST", "users", create_user),
    ("GET", "users/{user_id}", one_user),
    ("PATCH", "users/{user_id}", change_user),
    ("DELETE", "users/{user_id}", remove_user),
    ("GET", "users/{username}/id", user_id),
    ("GET", "groups", groups),
    ("POST", "groups", create_group),
    ("GET", "groups/{group_id}", one_group),
    ("PATCH", "groups/{group_id}", change_group),
    ("DELETE", "groups/{group_id}", remove_group),
    ("GET", "groups/{group_name}/id", group_id),
    ("GET", "resource_pools", resource_pools),
)
