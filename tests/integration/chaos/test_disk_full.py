"""The disk under the records is full: writes are refused, nothing else suffers, nothing is lost."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.chaos import Life, Site
from support.processes import eventually

HOLD_SECONDS = 100


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounting.returncode != 0:
        pytest.skip(f"NOT RUN: a small disk cannot be mounted here: {mounting.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return filler


async def test_a_full_disk_refuses_writes_and_spoils_nothing_else(small_disk: Path) -> None:
    with Site(small_disk) as site:
        async with site.life() as life:
            [worker] = await life.running("before")
            await life.forget_calls()
            await life.disturb("RunInstances", kind="delay", seconds=HOLD_SECONDS, count=1)
            launched = await life.create("meanwhile")
            await eventually(lambda: life.calls("RunInstances"))

            filler = fill(small_disk)
            names = iter(f"refused-{number}" for number in range(100))
            refusal = await eventually(lambda: first_refusal(life, next(names)))
            assert refusal["type"] == "urn:lcm:problem:store-unavailable"
            assert refusal["status"] == 503
            assert "nothing was changed" in refusal["detail"]
            status, problem = await life.api.call("POST", f"/api/workers/{worker['id']}/stop")
            assert (status, problem["type"]) == (503, refusal["type"])

            await life.heal()  # EC2 launches the instance, and LCM cannot write down which
            await eventually(lambda: life.instance_of(launched))
            assert (await life.see(worker))["status"] == "running"
            assert (await life.see(launched))["status"] == "pending"
            assert (await life.api.get("/api/workers"))["items"]
            assert (await life.api.get(f"{life.lcm.url}/health"))["status"] == "healthy"
            assert (await life.health())["status"] == "healthy"

            filler.unlink()
            await eventually(lambda: is_accepted(life, "after"))
            await life.act(worker, "stop")
            await life.prove()


async def first_refusal(life: Life, name: str) -> dict[str, str] | None:
    """What the log's last page still holds is acknowledged, and must be kept."""
    status, answer = await life.api.call("POST", "/api/workers", {"name": name, "template_name": "small"})
    if status == 202:
        life.acknowledge(answer)
        return None
    assert status == 503, answer
    refusal: dict[str, str] = answer
    return refusal


async def is_accepted(life: Life, name: str) -> bool:
    return await first_refusal(life, name) is None
