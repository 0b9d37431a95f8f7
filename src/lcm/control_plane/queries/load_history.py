"""The load of a worker over an hour, a day or a week, for a chart."""

from typing import Final

from lcm.control_plane.records.groups import Records
from lcm.control_plane.records.metrics_cache import KNOWN_FOR_SECONDS
from lcm.domain.load_history import LOAD, MEASURES, RESOLUTIONS, HistoryRange
from lcm.rest.schemas import HistoryPoint, LoadHistory

_DIGITS: Final = {measure: 1 if measure in LOAD else 0 for measure in MEASURES}
"""More would only be noise."""


async def load_history(records: Records, worker_id: str, span: HistoryRange) -> LoadHistory:
    """Return what is known of the range; raises NotFound."""
    worker = await records.workers.get(worker_id)
    resolution = RESOLUTIONS[span]
    step, now = resolution.step_seconds, records.clock.now().timestamp()
    return LoadHistory(
        worker_id=worker.id,
        range=span,
        since=float(resolution.oldest(now) * step),
        until=now,
        step_seconds=step,
        gap_seconds=max(int(KNOWN_FOR_SECONDS), 2 * step),
        points=[
            HistoryPoint(
                at=float(row.number * step),
                **{
                    measure: None if mean is None else round(mean, _DIGITS[measure])
                    for measure, mean in zip(MEASURES, row.means, strict=True)
                },
            )
            for row in await records.load_histories.rows_of(worker.id, span)
        ],
    )
