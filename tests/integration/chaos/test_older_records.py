"""A newer LCM on the data directory of an older one, which was killed and never came back."""

import json
import sqlite3
from contextlib import closing

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
            status, answer = response.status, await response.text()
        site.kill()
        assert (status, answer) == (200, '{"epoch":8}')
