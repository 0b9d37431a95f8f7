"""Definitions of nodes and images, users, groups and resource pools."""

from typing import Annotated, Any, Final

import msgspec
import yaml
from msgspec import UNSET, UnsetType

from lcm.simulator.cml.accounts import User, group_object, user_object
from lcm.simulator.cml.api.routing import Answer, Call, Route
from lcm.simulator.cml.definitions import NodeDefinition, added_definition, added_image, node_definition
from lcm.simulator.cml.pools import LIMITED, ResourcePool
from lcm.simulator.cml.refusal import Refused

_Limit = Annotated[int, msgspec.Meta(ge=0)]

# Definitions

SUCCESS: Final = "Success"
"""The answer to every change of a definition."""


def node_definitions(call: Call) -> list[dict[str, Any]]:
    return [node_definition(definition) for definition in call.server.definitions.values()]


def simplified_node_definitions(call: Call) -> list[dict[str, Any]]:
    return [
        {
            "id": definition.id,
            "image_definitions": [image["id"] for image in _images_of(call, definition.id)],
            "general": node_definition(definition).get("general", {}),
            "ui": node_definition(definition).get("ui", {}),
        }
        for definition in call.server.definitions.values()
    ]


def one_node_definition(call: Call) -> Any:
    return _json_or_yaml(call, node_definition(_definition(call)))


def add_node_definition(call: Call) -> str:
    """JSON or YAML."""
    call.need_admin()
    definition = added_definition(_yaml(call))
    if definition.id in call.server.definitions:
        raise Refused(400, f"Node definition already exists: {definition.id}")
    call.server.definitions[definition.id] = definition
    return SUCCESS


def change_node_definition(call: Call) -> str:
    call.need_admin()
    definition = added_definition(_yaml(call))
    present = call.server.definitions.get(definition.id)
    if present is None:
        raise Refused(404, f"Node definition not found: {definition.id}")
    if present.body is None:
        raise Refused(403, f"Node definition {definition.id} is read-only.")
    call.server.definitions[definition.id] = definition
    return SUCCESS


def remove_node_definition(call: Call) -> None:
    call.need_admin()
    definition = _definition(call)
    if definition.body is None:
        raise Refused(403, f"Node definition {definition.id} is read-only.")
    if any(node.definition.id == definition.id for node in call.server.labs.nodes()):
        raise Refused(400, f"Node definition {definition.id} is in use.")
    del call.server.definitions[definition.id]


def image_definitions(call: Call) -> list[dict[str, Any]]:
    return list(call.server.images.values())


def one_image_definition(call: Call) -> Any:
    return _json_or_yaml(call, _image(call))


def add_image_definition(call: Call) -> str:
    """JSON or YAML."""
    call.need_admin()
    image = added_image(_yaml(call), call.server.definitions)
    if image["id"] in call.server.images:
        raise Refused(400, f"Image definition already exists: {image['id']}")
    call.server.images[image["id"]] = image
    return SUCCESS


def change_image_definition(call: Call) -> str:
    call.need_admin()
    image = added_image(_yaml(call), call.server.definitions)
    present = call.server.images.get(image["id"])
    if present is None:
        raise Refused(404, f"Image definition not found: {image['id']}")
    if present.get("read_only"):
        raise Refused(403, f"Image definition {image['id']} is read-only.")
    call.server.images[image["id"]] = image
    return SUCCESS


def remove_image_definition(call: Call) -> None:
    call.need_admin()
    image = _image(call)
    if image.get("read_only"):
        raise Refused(403, f"Image definition {image['id']} is read-only.")
    del call.server.images[image["id"]]


def images_of_node_definition(call: Call) -> list[dict[str, Any]]:
    return _images_of(call, _definition(call).id)


def _definition(call: Call) -> NodeDefinition:
    definition = call.server.definitions.get(call.names["definition_id"])
    if definition is None:
        raise Refused(404, f"Node definition not found: {call.names['definition_id']}")
    return definition


def _image(call: Call) -> dict[str, Any]:
    image = call.server.images.get(call.names["definition_id"])
    if image is None:
        raise Refused(404, f"Image definition not found: {call.names['definition_id']}")
    return image


def _images_of(call: Call, definition_id: str) -> list[dict[str, Any]]:
    return [image for image in call.server.images.values() if image["node_definition_id"] == definition_id]


def _yaml(call: Call) -> Any:
    try:
        return yaml.safe_load(call.query.body)
    except (yaml.YAMLError, UnicodeDecodeError) as mistake:
        raise Refused(400, f"Bad request: {mistake}") from None


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
    labs = call.server.labs
    pool = labs.pools.of(user.id)
    return user_object(
        user, [lab.id for lab in labs.all() if lab.owner_id == user.id], pool.id if pool else None
    )


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


# Resource pools


class PoolFields(msgspec.Struct, frozen=True):
    """A new pool, or what changes in one."""

    label: Annotated[str, msgspec.Meta(min_length=1)] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    licenses: _Limit | UnsetType | None = UNSET
    cpus: _Limit | UnsetType | None = UNSET
    ram: _Limit | UnsetType | None = UNSET
    users: list[str] | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not UNSET}


def resource_pools(call: Call) -> list[Any]:
    """All for administrators, their own for users."""
    pools = [pool for pool in call.server.labs.pools.all() if call.user.admin or call.user.id in pool.users]
    return [pool.shown() for pool in pools] if call.flag("data") else [pool.id for pool in pools]


def create_resource_pool(call: Call) -> dict[str, Any]:
    call.need_admin()
    given = call.read(PoolFields).given()
    if "label" not in given:
        raise Refused(400, "Bad request: a resource pool needs a label")
    for member in given.get("users", ()):
        call.server.accounts.user(member)
    return call.server.labs.pools.add(**given).shown()


def one_resource_pool(call: Call) -> dict[str, Any]:
    return _pool(call).shown()


def change_resource_pool(call: Call) -> dict[str, Any]:
    """Its users stay."""
    call.need_admin()
    pool = _pool(call)
    for name, value in call.read(PoolFields).given().items():
        if name != "users":
            setattr(pool, name, value)
    return pool.shown()


def remove_resource_pool(call: Call) -> None:
    call.need_admin()
    call.server.labs.pools.remove(_pool(call).id)


def resource_pool_usage(call: Call) -> dict[str, Any]:
    pool, labs = _pool(call), call.server.labs
    others = {"disk_space": 0, "external_connectors": []}
    taken = labs.pools.taken(pool, labs.nodes())
    return {
        "limit": {name: getattr(pool, name) for name in LIMITED} | others,
        "usage": taken._asdict() | others,
    }


def _pool(call: Call) -> ResourcePool:
    pool = call.server.labs.pools.get(call.names["pool_id"])
    if call.user.id not in pool.users:
        call.need_admin()
    return pool


CREATED: Final = frozenset({create_user, create_group})
"""Answered with 201."""

ROUTES: Final[tuple[Route, ...]] = (
    ("GET", "node_definitions", node_definitions),
    ("POST", "node_definitions", add_node_definition),
    ("PUT", "node_definitions", change_node_definition),
    ("DELETE", "node_definitions/{definition_id}", remove_node_definition),
    ("POST", "image_definitions", add_image_definition),
    ("PUT", "image_definitions", change_image_definition),
    ("DELETE", "image_definitions/{definition_id}", remove_image_definition),
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
    ("POST", "resource_pools", create_resource_pool),
    ("GET", "resource_pools/{pool_id}", one_resource_pool),
    ("PATCH", "resource_pools/{pool_id}", change_resource_pool),
    ("DELETE", "resource_pools/{pool_id}", remove_resource_pool),
    ("GET", "resource_pool_usage/{pool_id}", resource_pool_usage),
)
