"""A client that a common generator makes from the served document works.

The generator's dependencies are not ours, so it runs from a directory of its own, filled by `make test`.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.lone_plane import LonePlane, lone_plane

GENERATOR = Path(sys.prefix) / "openapi-python-client"

SMOKE = """
import json, os

from generated import AuthenticatedClient
from generated.api.workers import create_worker, get_worker, list_workers
from generated.models import NewWorker, Problem

with AuthenticatedClient(base_url=os.environ["URL"], token=os.environ["TOKEN"]) as client:
    listed = list_workers.sync(client=client)
    created = create_worker.sync(client=client, body=NewWorker(name="generated", template_name="small"))
    found = get_worker.sync(created.id, client=client)
    missing = get_worker.sync("no-such-worker", client=client)
    invalid = create_worker.sync(client=client, body=NewWorker(name="generated", template_name="small"))
for problem in (missing, invalid):
    assert isinstance(problem, Problem), problem
print(json.dumps([
    [worker.name for worker in listed.items], found.name, found.status.value, missing.status, invalid.type_
]))
"""


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[LonePlane]:
    async with lone_plane(tmp_path / "data") as plane:
        yield plane


async def run(folder: Path, *arguments: str, **environment: str) -> tuple[str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(GENERATOR), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = (text.decode() for text in await process.communicate())
    assert process.returncode == 0, (out, errors)
    return out, errors


@pytest.mark.skipif(not GENERATOR.is_dir(), reason="there is no generator: 'make test' installs it")
async def test_a_generated_client_lists_creates_and_gets_workers_and_reads_problems(
    plane: LonePlane, tmp_path: Path
) -> None:
    document = await plane.admin.get("/api/openapi.json")
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    (tmp_path / "config.yaml").write_text("post_hooks: []\n")
    generate = (
        "-m",
        "openapi_python_client",
        "generate",
        "--path",
        "openapi.json",
        "--config",
        "config.yaml",
    )
    await run(tmp_path, *generate, "--meta", "none", "--output-path", "generated")
    modules = {path.stem for path in (tmp_path / "generated" / "api").glob("*/*.py")}
    names = {operation["operationId"] for at in document["paths"].values() for operation in at.values()}
    assert names - modules == set()
    out, _ = await run(tmp_path, "-c", SMOKE, URL=plane.url, TOKEN=plane.token)
    assert json.loads(out) == [["live"], "generated", "pending", 404, "urn:lcm:problem:name-taken"]
