"""Routes for controllers and other control planes, all under `/api/internal`."""

from lcm.control_plane.api.internal import (
    cml_login,
    feed,
    fleet,
    idle,
    licensing,
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
    workers.router,
    feed.router,
)
