"""The answer to every request that changes a worker: 202 with the record, and the record's ETag."""

from starlette.responses import Response

from lcm.control_plane.records.preconditions import etag
from lcm.domain.worker import Worker
from lcm.rest.schemas import WorkerView
from lcm.web.answers import answer, documented

INTENT = documented(WorkerView, 202, "Accepted; effects follow.", problems=[404, 409, 412, 422])


def accepted(worker: Worker) -> Response:
    return answer(WorkerView.of(worker), 202, etag=etag(worker.version))
