"""Sealed secrets: what opens, what does not, and how a key is replaced without losing any."""

import base64
import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import CannotOpen, KeyFile, SecretBox
from lcm.control_plane.access.secrets import KIND, SecretStore
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, Fence, StoreUnavailable
from lcm.core.configuration import ConfigurationError
from lcm.domain.errors import Conflict

KEY, OTHER = bytes(range(32)), bytes(range(32, 64))


@pytest.mark.no_cover  # many times what is measured elsewhere
@given(st.text(), st.text())
def test_what_was_sealed_opens_again_in_its_place(secret: str, place: str) -> None:
    box = SecretBox.of(KEY)
    assert box.open(box.seal(secret, belongs_to=place), belongs_to=place) == secret


def test_the_same_secret_is_never_sealed_to_the_same_text_twice() -> None:
    box = SecretBox.of(KEY)
    assert len({box.seal("secret", belongs_to="x") for _ in range(100)}) == 100


def test_a_secret_does_not_open_in_another_place_or_with_another_key_or_when_changed() -> None:
    box = SecretBox.of(KEY)
    sealed = box.seal("secret", belongs_to="worker-1")
    last = "A" if sealed[-2] != "A" else "B"
    for other_box, text, place in (
        (box, sealed, "worker-2"),
        (SecretBox.of(OTHER), sealed, "worker-1"),
        (box, f"{sealed[:-2]}{last}{sealed[-1]}", "worker-1"),
        (box, sealed.replace("v1.", "v2."), "worker-1"),
        (box, sealed[:-40], "worker-1"),
        (box, "", "worker-1"),
    ):
        with pytest.raises(CannotOpen):
            other_box.open(text, belongs_to=place)


def test_a_box_does_not_show_its_keys() -> None:
    box = SecretBox.of(KEY)
    assert str(KEY) not in repr(box)
    assert base64.b64encode(KEY).decode() not in repr(box)


def test_the_key_file_is_for_its_owner_and_gives_the_same_keys_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    box = KeyFile(path).load_or_create()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KeyFile(path).load_or_create().keys == box.keys


@pytest.mark.parametrize("text", ["", "{}", '{"keys": []}', '{"keys": ["x"]}', "not json"])
def test_a_damaged_key_file_is_never_replaced_by_a_new_one(text: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="restore it from a backup"):
        KeyFile(path).load_or_create()
    assert path.read_text() == text


@pytest.mark.parametrize("key", [b"replace-me-replace-me-replace-me", bytes(32), b"0123" * 8])
def test_a_key_that_anyone_could_know_is_refused(key: bytes) -> None:
    weak, strong = (base64.b64encode(each).decode() for each in (key, KEY))
    with pytest.raises(ConfigurationError, match="not random"):
        SecretBox.parse(f"{weak},{strong}")
    sealed = SecretBox.of(key).seal("secret", belongs_to="w1")
    assert SecretBox.parse(f"{strong},{weak}").open(sealed, belongs_to="w1") == "secret", "rotated away"


@pytest.mark.parametrize("key", ["", "a", "replace-me", "change-me-" * 4, "ab" * 16])
def test_a_key_file_with_a_key_that_can_be_guessed_is_refused(key: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = AccessKeys.load_or_create(path)
    assert AccessKeys.load_or_create(path) == made
    path.write_text(json.dumps({**json.loads(path.read_text()), "operator": key}))
    with pytest.raises(ConfigurationError, match=r"the key of the operator .*openssl rand -hex 32"):
        AccessKeys.load_or_create(path)


@pytest.mark.parametrize("text", ["", "short", base64.b64encode(bytes(31)).decode(), "!" * 44])
def test_a_key_that_is_not_32_bytes_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        SecretBox.parse(text)
    assert not text or text not in str(refused.value)


async def test_secrets_are_stored_replaced_and_removed() -> None:
    secrets = SecretStore(MemoryStore(), SecretBox.of(KEY))
    await secrets.put("cml-password", "w1", "first")
    await secrets.put("cml-password", "w1", "second")
    await secrets.put("license-token", "w1", "third")
    assert await secrets.get("cml-password", "w1") == "second"
    await secrets.remove("cml-password", "w1")
    await secrets.remove("cml-password", "w1")
    assert await secrets.get("cml-password", "w1") is None
    assert await secrets.get("license-token", "w1") == "third"


async def test_the_store_never_sees_a_secret() -> None:
    store = MemoryStore()
    await SecretStore(store, SecretBox.of(KEY)).put("cml-password", "w1", "canary-password")
    (document,) = await store.list_all(KIND)
    for form in (b"canary-password", base64.b64encode(b"canary-password"), b"canary-p"):
        assert form not in document.body


async def test_a_rotation_loses_nothing_and_the_old_key_opens_nothing(tmp_path: Path) -> None:
    store, key_file = MemoryStore(), KeyFile(tmp_path / "keys.json")
    old_box = key_file.load_or_create()
    secrets = SecretStore(store, old_box, key_file)
    for number in range(5):
        await secrets.put("cml-password", f"w{number}", f"secret {number}")
    assert await secrets.rotate() == 5
    assert [await secrets.get("cml-password", f"w{n}") for n in range(5)] == [f"secret {n}" for n in range(5)]
    with pytest.raises(CannotOpen):
        await SecretStore(store, old_box).get("cml-password", "w0")
    assert len(json.loads((tmp_path / "keys.json").read_text())["keys"]) == 1
    again = SecretStore(store, key_file.load_or_create(), key_file)
    assert await again.get("cml-password", "w3") == "secret 3"


class FailingStore(MemoryStore):
    """Fails after so many replacements, as a full disk would."""

    def __init__(self) -> None:
        super().__init__()
        self.replacements_left = 10**6

    async def replace(self, document: Document, fence: Fence | None = None) -> None:
        if self.replacements_left == 0:
            raise StoreUnavailable("disk full")
        self.replacements_left -= 1
        await super().replace(document, fence)


@pytest.mark.parametrize("replaced", range(4))
async def test_a_rotation_that_is_cut_off_goes_on_at_the_next_start(replaced: int, tmp_path: Path) -> None:
    store, key_file = FailingStore(), KeyFile(tmp_path / "keys.json")
    secrets = SecretStore(store, key_file.load_or_create(), key_file)
    for number in range(4):
        await secrets.put("cml-password", f"w{number}", f"secret {number}")
    store.replacements_left = replaced
    with pytest.raises(StoreUnavailable):
        await secrets.rotate()
    assert await secrets.get("cml-password", "w3") == "secret 3"
    store.replacements_left = 10**6
    restarted = SecretStore(store, key_file.load_or_create(), key_file)
    await restarted.finish_rotation()
    for number in range(4):
        assert await restarted.get("cml-password", f"w{number}") == f"secret {number}"
    assert len(json.loads((tmp_path / "keys.json").read_text())["keys"]) == 1


async def test_a_key_from_the_environment_is_rotated_by_putting_a_new_one_before_it() -> None:
    store = MemoryStore()
    old, new = base64.b64encode(KEY).decode(), base64.b64encode(OTHER).decode()
    secrets = SecretStore(store, SecretBox.parse(old))
    await secrets.put("cml-password", "w1", "secret")
    with pytest.raises(Conflict, match="LCM_SECRET_KEY"):
        await secrets.rotate()
    restarted = SecretStore(store, SecretBox.parse(f"{new}, {old}"))
    await restarted.finish_rotation()
    assert await SecretStore(store, SecretBox.parse(new)).get("cml-password", "w1") == "secret"
