"""Forward compatibility: a control plane preserves record fields that only a later version knows.

During an upgrade control planes of two versions share the records. The older one changes the fields it knows;
the others must still be there when the newer one reads the record again.
"""

from typing import Any

import msgspec


def encode_over(stored: bytes, understood: msgspec.Struct, changed: msgspec.Struct) -> bytes:
    """Return the changed record for writing over the stored one, of which `understood` was decoded.

    An unchanged part of the record stays as it was stored; a changed part is written as encoded here.
    """
    body, known = msgspec.json.encode(changed), msgspec.json.encode(understood)
    if known == stored:
        return body
    decode = msgspec.json.decode
    return msgspec.json.encode(_record(decode(stored), decode(known), decode(body)))


def _record(stored: dict[str, Any], understood: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    merged = dict(changed)
    for name, value in stored.items():
        if name not in understood:
            merged.setdefault(name, value)
        elif name in changed:
            merged[name] = _part(value, understood[name], changed[name])
    return merged


def _part(stored: Any, understood: Any, changed: Any) -> Any:
    if changed == understood:
        return stored
    if isinstance(stored, list) and isinstance(changed, list):
        pairs = list(zip(stored, understood, strict=True))
        return [next((raw for raw, known in pairs if known == item), item) for item in changed]
    return changed
