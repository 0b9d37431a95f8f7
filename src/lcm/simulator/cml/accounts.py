"""The users and groups of one server."""

import hmac
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lcm.simulator.cml.refusal import Refused
from lcm.simulator.cml.times import shown

ADMIN_ID: Final = "00000000-0000-4000-a000-000000000000"


@dataclass
class User:
    """A user with an account."""

    id: str
    username: str
    password: str
    admin: bool
    created: float
    modified: float
    fullname: str = ""
    description: str = ""
    email: str = ""
    groups: list[str] = field(default_factory=list)


@dataclass
class Group:
    """Several users with one name."""

    id: str
    name: str
    created: float
    modified: float
    description: str = ""
    members: list[str] = field(default_factory=list)
    associations: list[Any] = field(default_factory=list)


class Accounts:
    """The accounts. The administrator always has one."""

    def __init__(self, *, username: str, password: str, at: float, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        admin = User(ADMIN_ID, username, password, admin=True, created=at, modified=at)
        self.users: dict[str, User] = {admin.id: admin}
        self.groups: dict[str, Group] = {}

    def login(self, username: object, password: object) -> User | None:
        """The user whose password this is."""
        user = self.by_name(username)
        if user is None or not isinstance(password, str):
            return None
        return user if hmac.compare_digest(user.password.encode(), password.encode()) else None

    def by_name(self, username: object) -> User | None:
        return next((user for user in self.users.values() if user.username == username), None)

    def user(self, user_id: str) -> User:
        if user_id not in self.users:
            raise Refused(404, f"User not found: {user_id}")
        return self.users[user_id]

    def group(self, group_id: str) -> Group:
        if group_id not in self.groups:
            raise Refused(404, f"Group not found: {group_id}")
        return self.groups[group_id]

    def add_user(self, at: float, *, username: str, password: str, admin: bool = False, **more: Any) -> User:
        if self.by_name(username) is not None:
            raise Refused(422, f"User already exists: {username}")
        user = User(self._new_id(), username, password, admin=admin, created=at, modified=at, **more)
        self.users[user.id] = user
        return user

    def add_group(self, at: float, *, name: str, **more: Any) -> Group:
        if any(group.name == name for group in self.groups.values()):
            raise Refused(422, f"Group already exists: {name}")
        group = Group(self._new_id(), name, created=at, modified=at, **more)
        self.groups[group.id] = group
        return group

    def remove_user(self, user_id: str) -> None:
        if user_id == ADMIN_ID:
            raise Refused(403, "The built-in administrator cannot be deleted.")
        del self.users[self.user(user_id).id]

    def person(self, name: str, at: float) -> User:
        """The account of a simulated person, created at the first visit."""
        user_id = str(uuid.UUID(int=uuid.uuid5(uuid.NAMESPACE_OID, name).int, version=4))
        if user_id not in self.users:
            self.users[user_id] = User(
                user_id,
                name,
                self.users[ADMIN_ID].password,
                admin=False,
                created=at,
                modified=at,
                fullname=name.title(),
            )
        return self.users[user_id]


def user_object(user: User, lab_ids: list[str], pool_id: str | None) -> dict[str, Any]:
    """As `GET /users` shows a user: never the password."""
    return {
        "id": user.id,
        "username": user.username,
        "fullname": user.fullname,
        "description": user.description,
        "email": user.email,
        "admin": user.admin,
        "groups": list(user.groups),
        "associations": [],
        "labs": lab_ids,
        "resource_pool": pool_id,
        "opt_in": None,
        "tour_version": "",
        "created": shown(user.created),
        "modified": shown(user.modified),
        "directory_dn": "",
        "pubkey_info": "",
    }


def group_object(group: Group) -> dict[str, Any]:
    return {
        "id": group.id,
        "name": group.name,
        "description": group.description,
        "members": list(group.members),
        "associations": list(group.associations),
        "created": shown(group.created),
        "modified": shown(group.modified),
    }
