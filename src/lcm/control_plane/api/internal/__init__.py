"""Routes for controllers and other control planes, all under `/api/internal`."""

from lcm.control_plane.api.internal import (
    cml_login,
    feed,
    fleet,
    idle,
    lablet_labs,
    lablet_sessions,
    labs,
    licensing,
    placements,
    processes,
    scaling,
    telemetry,
    workers,
)

ROUTERS = (
    telemetry.router,
    idle.router,
    scaling.router,
    licensing.router,
    cml_login.router,
    fleet.router,
    lablet_sessions.router,
    lablet_labs.router,
    labs.router,
    placements.router,
    processes.router,
    workers.router,
    feed.router,
)
