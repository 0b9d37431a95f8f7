"""What every body that people send keeps: nothing but its fields, and each of the type that is documented."""

from pydantic import BaseModel, ConfigDict


class RequestBody(BaseModel):
    """Refuses unknown fields and takes no type for another: `false` is no number, and "yes" is not true."""

    model_config = ConfigDict(extra="forbid", strict=True)
