"""Settings that make rare things common; a random run draws them from its seed."""

from dataclasses import dataclass, replace
from datetime import datetime
from random import Random

from support.virtual_time import BEGINNING


@dataclass(frozen=True)
class Knobs:
    """Timeouts, delays and sizes. The defaults are those of a real installation."""

    lease_ttl: int = 15
    reconcile_interval: float = 30.0
    wait_seconds: float = 2.0
    debounce_seconds: float = 0.5
    kv_history: int = 10_000
    visibility_seconds: float = 0.0
    instance_seconds: float = 10.0
    latency_seconds: float = 0.02
    controllers: int = 2
    discovery: bool = False
    """Whether foreign instances are imported and orphans are swept."""
    discovery_interval: float = 300.0
    is_import_allowed: bool = True
    """Whether every foreign instance is on the allow-list; else an admin has to adopt it."""
    orphan_termination: bool = False
    license_pool: int = 100
    license_seconds: float = 0.0
    """How long CML takes to register a license."""
    ec2_changes_per_second: float = 0.0
    """Rate limit of a controller for changes at EC2; 0: unlimited."""
    monitoring: bool = False
    """Whether every instance has a CML server, and controllers monitor it."""
    statistics_seconds: float = 10.0
    """How often a CML server pushes its load, less often than a real one; monitoring follows it."""
    activity_events_kept: int = 10

    people: bool = False
    """Whether monitored workers without activity are paused."""
    idle_timeout_seconds: float = 3600.0
    idle_check_seconds: float = 300.0
    min_workers: int = 0
    scale_down: bool = False
    """Whether idle workers are drained instead of paused."""

    begins: datetime = BEGINNING
    schedulers: int = 0
    """Resource schedulers that compete; without one there are no lablet sessions."""
    lablet_controllers: int = 0
    """Lablet controllers that compete; with one every instance keeps labs, and is monitored."""
    look_seconds: float = 30.0
    """How often lablet controllers look for labs to be listed, and for requests about labs."""
    extract_seconds: float = 0.0
    """How long a stop waits for the configurations of nodes; 0: it does not."""
    max_workers: int = 10
    scale_up_cooldown_seconds: float = 300.0
    lead_minutes: float = 10.0
    """How long before its timeslot a worker is looked for; shorter than installed, as all such times."""
    boot_minutes: float = 3.0
    """How long a new worker is expected to take."""

    no_answer_seconds: float = 10.0
    """How long a caller waits for an answer that does not come."""
    election_timeout_seconds: float = 2.0
    election_retry_seconds: float = 5.0
    provisioning_seconds: float = 900.0
    publish_sweep_seconds: float = 5.0
    heartbeat_seconds: float = 30.0
    queue_capacity: int = 100_000
    max_concurrent: int = 10
    max_parked: int = 1_000
    event_buffer: int = 1_000
    event_backlog_bytes: int = 256 * 1024
    page_size: int = 100

    @staticmethod
    def draw(seed: int) -> "Knobs":
        """Draw mostly the installed values; sometimes one is tiny, or huge."""
        rng = Random(f"knobs/{seed}")
        lease_ttl = rng.choice([15, 15, 15, 15, 6, 3])
        # A lease that cannot be renewed in time is a wrong setting, not a fault.
        slowest = 0.5 if lease_ttl >= 15 else 0.05
        latency_seconds = rng.choice([0.02, 0.02, slowest, 0.0])
        instance_seconds = rng.choice([10.0, 10.0, 60.0, 1.0])
        return Knobs(
            lease_ttl=lease_ttl,
            reconcile_interval=rng.choice([30.0, 30.0, 10.0]),
            wait_seconds=rng.choice([2.0, 2.0, 0.5]),
            debounce_seconds=rng.choice([0.5, 0.5, 0.05]),
            kv_history=rng.choice([10_000, 10_000, 5]),
            visibility_seconds=rng.choice([0.0, 0.0, 30.0, 200.0]),
            instance_seconds=instance_seconds,
            latency_seconds=latency_seconds,
            controllers=rng.choice([2, 2, 3]),
            no_answer_seconds=rng.choice([10.0, 10.0, 1.0]),
            election_timeout_seconds=rng.choice([2.0, 2.0, 0.1]) if latency_seconds < 0.05 else 2.0,
            provisioning_seconds=rng.choice([900.0, 900.0, 900.0, 6 * instance_seconds + 60]),
            election_retry_seconds=rng.choice([5.0, 15.0, 15.0]),
            publish_sweep_seconds=rng.choice([5.0, 20.0, 20.0]),
            queue_capacity=rng.choice([100_000, 100_000, 1]),
            max_concurrent=rng.choice([10, 10, 1]),
            max_parked=rng.choice([1_000, 1_000, 1]),
            event_buffer=rng.choice([1_000, 1_000, 1]),
            event_backlog_bytes=rng.choice([256 * 1024, 256 * 1024, 1]),
            page_size=rng.choice([100, 100, 1]),
        )

    @staticmethod
    def draw_with_people(seed: int) -> "Knobs":
        """Draw settings for hours of use: timers that count seconds are longer."""
        rng = Random(f"people/{seed}")
        drawn = Knobs.draw(seed)
        return replace(
            drawn,
            people=True,
            monitoring=True,
            statistics_seconds=60.0,
            activity_events_kept=1_000,
            # An idle check takes several calls; a timeout that they never meet is a wrong setting.
            no_answer_seconds=drawn.no_answer_seconds if drawn.latency_seconds < 0.1 else 10.0,
            lease_ttl=rng.choice([30, 60, 60]),
            heartbeat_seconds=300.0,
            publish_sweep_seconds=60.0,
            reconcile_interval=rng.choice([30.0, 60.0, 60.0]),
            election_retry_seconds=60.0,
            idle_timeout_seconds=rng.choice([600.0, 600.0, 900.0, 1800.0]),
            idle_check_seconds=rng.choice([300.0, 120.0]),
            min_workers=rng.choice([0, 0, 1]),
            scale_down=rng.random() < 0.25,
            license_seconds=rng.choice([5.0, 60.0, 150.0]),
        )

    @staticmethod
    def draw_with_sessions(seed: int) -> "Knobs":
        """Draw settings for bookings: a small fleet that may grow a little."""
        rng = Random(f"sessions/{seed}")
        return replace(
            Knobs.draw(seed),
            schedulers=rng.choice([2, 2, 2, 3]),
            controllers=1,
            visibility_seconds=0.0,
            instance_seconds=rng.choice([1.0, 10.0]),
            lease_ttl=rng.choice([15, 15, 30]),
            reconcile_interval=30.0,
            heartbeat_seconds=300.0,
            publish_sweep_seconds=rng.choice([5.0, 20.0, 20.0]),
            max_workers=rng.choice([1, 2, 3, 4]),
            scale_up_cooldown_seconds=rng.choice([30.0, 120.0]),
            lead_minutes=rng.choice([5.0, 10.0]),
            election_retry_seconds=rng.choice([5.0, 15.0]),
            election_timeout_seconds=2.0,
        )

    @staticmethod
    def draw_with_watched_sessions(seed: int) -> "Knobs":
        """The same with slow launches, and workers that are paused when they are idle."""
        drawn = Knobs.draw_with_sessions(seed)
        return replace(
            drawn,
            people=True,
            monitoring=True,
            statistics_seconds=60.0,
            idle_timeout_seconds=300.0,
            idle_check_seconds=60.0,
            lease_ttl=30,
            no_answer_seconds=drawn.no_answer_seconds if drawn.latency_seconds < 0.1 else 10.0,
            instance_seconds=100.0,
            boot_minutes=5.0,
            provisioning_seconds=900.0,
            max_workers=3,
            scale_down=seed % 3 == 0,
        )

    @staticmethod
    def draw_with_labs(seed: int) -> "Knobs":
        """Draw settings for sessions whose labs run: several lablet controllers, and one of all else."""
        drawn = Knobs.draw_with_sessions(seed)
        return replace(
            drawn,
            lablet_controllers=Random(f"labs/{seed}").choice([2, 2, 3]),
            extract_seconds=Random(f"extract/{seed}").choice([0.0, 0.0, 30.0]),
            schedulers=1,
            people=True,
            monitoring=True,
            statistics_seconds=60.0,
            activity_events_kept=1_000,
            idle_timeout_seconds=3600.0,
            no_answer_seconds=drawn.no_answer_seconds if drawn.latency_seconds < 0.1 else 10.0,
            instance_seconds=10.0,
            max_workers=3,
        )


CALM = Knobs(
    lease_ttl=600,
    reconcile_interval=600.0,
    election_retry_seconds=600.0,
    publish_sweep_seconds=600.0,
    heartbeat_seconds=600.0,
)
"""Long timers: a simulated month runs within a minute."""
