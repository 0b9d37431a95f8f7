"""How long tests wait."""

from typing import Final

PATIENCE_SECONDS: Final = 60.0
"""For what must happen. It ends a hang and is no promise about speed: hosts stand still now and then."""
