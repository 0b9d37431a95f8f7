"""`lcm store copy`: the embedded store's records to MongoDB, with a progress bar."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lcm.control_plane.store.copy import copy_store
from lcm.control_plane.store.mongodb import MongoStore
from lcm.control_plane.store.sqlite import SqliteStore
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds


async def copy_with_progress(source: Path, url: str) -> None:
    """Copy and verify. Raises CopyFailed or StoreUnavailable."""
    columns = (TextColumn("copying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    async with SqliteStore(source) as embedded, MongoStore(url, SystemClock(), RandomIds()) as target:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task("copy", total=None)
            count = await copy_store(
                embedded, target, lambda done, total: progress.update(task, completed=done, total=total)
            )
    Console().print(f"[bold green]{count} documents copied and compared.[/] Start LCM with STORE_URL set.")
