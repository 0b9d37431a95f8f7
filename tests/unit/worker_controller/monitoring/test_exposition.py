"""What Prometheus sees of live connections."""

from lcm.core.telemetry import Telemetry
from lcm.domain.telemetry import MonitorState
from lcm.domain.worker import CmlHealth, CmlLicense
from lcm.worker_controller.monitoring.metrics import MetricsLoop
from lcm.worker_controller.monitoring.service import LiveMonitoring, register_monitoring_metrics
from support.live import W1, a_target, watching_memory
from support.memory_live import MemoryLiveServer, MemoryMetrics
from support.virtual_time import VirtualClock


async def test_the_series_of_a_worker_are_there_and_end_with_it() -> None:
    clock = VirtualClock()
    cml = MemoryLiveServer(clock)
    async with watching_memory({"10.0.0.1": cml}, clock) as (live, _):
        telemetry = Telemetry()
        reporter = live.registry._reporter
        metrics = MetricsLoop(
            live.plane,
            MemoryMetrics([]),
            live.registry.session_of,
            reporter.add_sample,
            interval_seconds=60.0,
            clock=clock,
            health=live.health,
        )
        monitoring = LiveMonitoring(live.registry, reporter, metrics, clock)
        register_monitoring_metrics(telemetry, monitoring, clock)
        monitoring.ensure_monitoring(a_target())
        await live.until_state(MonitorState.CONNECTED)
        await clock.sleep(61)
        metrics.licenses[W1] = CmlLicense(registration_status="COMPLETED", product_license="CML_Enterprise")
        metrics.health[W1] = CmlHealth(valid=False, failing=("cml: kvm_vmx_enabled",))
        cml.push(
            {
                "event_type": "lab_event",
                "lab_id": "l",
                "event": "state",
                "data": {"state": "STARTED"},
            }
        )
        text = telemetry.render().decode()
        assert 'lcm_worker_websocket_connected{worker_id="w-1"} 1.0' in text
        assert 'lcm_worker_websocket_messages_total{event_type="lab_event",worker_id="w-1"} 1.0' in text
        assert 'lcm_worker_websocket_reconnects_total{worker_id="w-1"} 0.0' in text
        assert 'lcm_worker_websocket_activity_events_total{worker_id="w-1"} 1.0' in text
        assert 'lcm_worker_websocket_last_message_age_seconds{worker_id="w-1"} 0.0' in text
        assert 'worker_cml_license_status{tier="CML_Enterprise",worker_id="w-1"} 0.0' in text
        assert 'worker_cml_healthy{worker_id="w-1"} 0.0' in text
        assert 'worker_cml_failing_check{check="cml: kvm_vmx_enabled",worker_id="w-1"} 1.0' in text
        assert 'worker_cml_info{version="2.9.1+build.7",worker_id="w-1"} 1.0' in text
        assert "_total_total" not in text

        monitoring.stop_monitoring(W1, "stopped")
        text = telemetry.render().decode()
        assert 'lcm_worker_websocket_connected{worker_id="w-1"} 0.0' in text
        assert 'lcm_worker_websocket_messages_total{event_type="lab_event",worker_id="w-1"} 1.0' in text

        monitoring.forget(W1)
        assert "w-1" not in telemetry.render().decode()
