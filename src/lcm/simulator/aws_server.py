"""The AWS process: `python -m lcm.simulator.aws_server '{"seed": 0, "speed": 1.0, …}'`.

Prints one JSON line (`port`, `regions`) when it can answer, then serves until its standard input
ends. Its parent holds the other end of that pipe, so it cannot outlive the parent, however the
parent dies.
"""

import gc
import os
import sys
import threading
from typing import Final

import msgspec

from lcm.simulator.aws.config import AwsConfig, AwsReady

MOTO_SETTINGS: Final = {
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
    "MOTO_ENABLE_AMI_VALIDATION": "1",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "1",
}
"""moto reads these while it is imported."""


def main() -> None:
    """Serve until standard input ends."""
    # First of all, so that a parent dying during the slow imports below is noticed too.
    threading.Thread(target=_exit_with_parent, name="parent", daemon=True).start()
    config = msgspec.json.decode(sys.argv[1], type=AwsConfig)
    os.environ.update(MOTO_SETTINGS)
    gc.disable()  # what is loaded now stays: scanning it takes a fifth of the start, and stalls answers
    from lcm.simulator.aws.server import serve

    gc.freeze()
    gc.enable()
    serve(config, _announce)


def _announce(ready: AwsReady) -> None:
    print(msgspec.json.encode(ready).decode(), flush=True)


def _exit_with_parent() -> None:
    # Unbuffered: a buffered reader's lock could be held when the interpreter ends otherwise.
    while os.read(0, 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
