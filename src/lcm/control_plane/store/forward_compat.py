"""Forward compatibility: a control plane preserves record fields that only a later version knows.

During an upgrade control planes of two versions share the records. The older one changes the fields it knows;
the others must still be there when the newer one reads the record again.
"""

from collections.abc import Collection
from typing import Any

import msgspec

Json = dict[str, Any]


def is_all_of(stored: bytes, understood: msgspec.Struct) -> bool:
    """Whether the stored record has no field but those of `understood`, which was decoded of it."""
    return msgspec.json.encode(understood) == stored


def encode_over(
    stored: bytes, understood: msgspec.Struct, changed: msgspec.Struct, parts: Collection[str] = ()
) -> bytes:
    """Return the changed record for writing over the stored one, of which `understood` was decoded.

    What is unchanged stays as it was stored; what is changed is written as encoded here, a value as a whole.
    A field that is named in `parts` groups fields of the record: in it, too, those of a later version stay.
    """
    body = msgspec.json.encode(changed)
    if is_all_of(stored, understood):
        return body
    known = msgspec.json.encode(understood)
    raw, before, after = (msgspec.json.decode(text) for text in (stored, known, body))
    merged = _fields(raw, before, after)
    for part in parts:
        if part in raw:
            merged[part] = _fields(raw[part], before[part], after[part])
    return msgspec.json.encode(merged)


def _fields(stored: Json, understood: Json, changed: Json) -> Json:
    merged = dict(changed)
    for name, value in stored.items():
        if name not in understood:
            merged.setdefault(name, value)
        elif name in changed:
            merged[name] = _field(value, understood[name], changed[name])
    return merged


def _field(stored: Any, understood: Any, changed: Any) -> Any:
    if changed == understood:
        return stored
    if isinstance(stored, list) and isinstance(changed, list):
        pairs = list(zip(stored, understood, strict=True))
        return [next((raw for raw, known in pairs if known == item), item) for item in changed]
    return changed
