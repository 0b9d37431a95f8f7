"""Records of other versions: of an older LCM, and of a newer one that runs beside this one."""

import json
import sqlite3
from contextlib import closing
from typing import Any

from support.api import Json
from support.chaos import Site

BEFORE_ELECTIONS_WERE_KEPT_PER_STORE = {
    "cluster_id": "an earlier coordination store",
    "revision": 5,
    "instance_id": "an earlier controller",
    "earlier_clusters": ["an even earlier one"],
}


async def test_the_leadership_record_of_the_version_before_does_not_lock_out_the_next_leader(
    site: Site,
) -> None:
    async with site.life() as life:
        await life.prove()
        with closing(sqlite3.connect(site.data_dir / "lcm.db", timeout=5)) as db, db:
            db.execute(
                "INSERT INTO documents (kind, id, version, body) VALUES ('leadership', 'older', 7, ?)",
                (json.dumps(BEFORE_ELECTIONS_WERE_KEPT_PER_STORE).encode(),),
            )
        claim = {"service": "older", "cluster_id": "new", "revision": 1, "instance_id": "new"}
        url = f"{life.lcm.url}/api/internal/leadership"
        async with life.http.post(url, json=claim) as response:
            status, answer = response.status, await response.json()
        site.kill()
        assert (status, answer["epoch"]) == (200, 8)


async def test_a8_what_a_later_version_wrote_outlives_what_this_one_does(site: Site) -> None:
    """A8: unknown fields kept."""
    async with site.life() as life:
        [worker] = await life.running("later")
        await life.prove()
    site.kill()
    invented = {"by": "the next version"}
    with closing(sqlite3.connect(site.data_dir / "lcm.db", timeout=5)) as db, db:
        record = {**record_of(db, worker), "invented_later": invented}
        db.execute(
            "UPDATE documents SET body = ? WHERE kind = 'worker' AND id = ?",
            (json.dumps(record).encode(), worker["id"]),
        )
    async with site.life() as life:
        await life.act(worker, "stop")
        await life.api.until(worker, "stopped")
        with closing(sqlite3.connect(site.data_dir / "lcm.db", timeout=5)) as db:
            record = record_of(db, worker)
        assert (record["status"], record["invented_later"]) == ("stopped", invented)
        await life.prove()


def record_of(db: sqlite3.Connection, worker: Json) -> dict[str, Any]:
    found = db.execute("SELECT body FROM documents WHERE kind = 'worker' AND id = ?", (worker["id"],))
    record: dict[str, Any] = json.loads(found.fetchone()[0])
    return record
