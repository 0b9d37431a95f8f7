"""Refusals of a server."""

from typing import NoReturn


class Refused(Exception):
    """A request that is answered with an error: `{"code", "description"}` and nothing else."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.description = description


def lab_not_found(lab_id: str) -> NoReturn:
    """The official client greps for this text to know that a lab is gone."""
    raise Refused(404, f"Lab not found: {lab_id}")
