"""Metrics reach a collector that was named."""

import asyncio

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lcm.core.clock import SystemClock
from lcm.core.telemetry import OtlpExport, Telemetry
from lcm.core.timeouts import timeout
from support.patience import PATIENCE_SECONDS


async def test_gauges_and_counters_are_sent_to_the_collector() -> None:
    arrived: asyncio.Queue[ExportMetricsServiceRequest] = asyncio.Queue()

    async def collect(request: web.BaseRequest) -> web.Response:
        assert request.path == "/v1/metrics"
        arrived.put_nowait(ExportMetricsServiceRequest.FromString(await request.read()))
        return web.Response()

    runner = web.ServerRunner(web.Server(collect))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        telemetry = Telemetry()
        telemetry.counter(
            "lcm.worker.websocket.messages_total", "Frames.", lambda: [(7, {"worker_id": "w-1"})]
        )
        export = OtlpExport(telemetry, f"http://127.0.0.1:{runner.addresses[0][1]}", SystemClock(), 0.05)
        async with timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
            exporting = tasks.create_task(export.run())
            request = await arrived.get()
            exporting.cancel()
    finally:
        await runner.cleanup()
    [metric] = request.resource_metrics[0].scope_metrics[0].metrics
    assert metric.name == "lcm.worker.websocket.messages_total"
    assert metric.sum.data_points[0].as_int == 7
    assert "messages_total_total" not in telemetry.render().decode()
