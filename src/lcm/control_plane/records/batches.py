"""The classes: what was requested for many seats at once."""

from typing import Final

import msgspec

from lcm.control_plane.records.collection import Collection
from lcm.control_plane.store.port import Document
from lcm.domain.lablet.batch import LabletBatch

KIND: Final = "lablet-batch"

_decoder = msgspec.json.Decoder(LabletBatch)


class LabletBatches(Collection[LabletBatch]):
    """The classes of which sessions are kept."""

    kind = KIND
    noun = "class"
    listed_at = "/api/lablet-sessions, where each session names its batch"

    def read(self, document: Document) -> tuple[bytes, LabletBatch]:
        return document.body, _decoder.decode(document.body)
