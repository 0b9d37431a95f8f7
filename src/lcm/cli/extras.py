"""The extras of the package: what is missing is named in one line, with how to install it."""

from importlib.util import find_spec

PACKAGE = "lablet-cloud-manager"
_EXTRA_OF = {
    "moto": "simulator",
    "aiobotocore": "aws",
    "botocore": "aws",
    "aetcd": "etcd",
    "grpc": "etcd",
    "pymongo": "mongodb",
    **dict.fromkeys(
        (
            *(
                "cryptography",
                "fastapi",
                "httptools",
                "joserfc",
                "opentelemetry",
                "picows",
                "prometheus_client",
            ),
            *("pydantic", "pydantic_settings", "starlette", "structlog", "uvicorn", "uvloop"),
        ),
        "server",
    ),
}


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return what to install; None if the module is of no extra."""
    extra = _EXTRA_OF.get((error.name or "").partition(".")[0])
    return None if extra is None else advice(extra)


def has_simulator() -> bool:
    return find_spec("moto") is not None


def advice(extra: str) -> str:
    return f"this needs the extra {extra!r}: pip install '{PACKAGE}[{extra}]'"
