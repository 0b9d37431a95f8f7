"""Routes for people: the dashboard, the CLI, scripts."""

from lcm.control_plane.api.public import (
    catalogue,
    cml_login,
    events,
    idle,
    insight,
    licensing,
    scaling,
    secret_keys,
    sessions,
    settings,
    tokens,
    workers,
)

ROUTERS = (
    workers.router,
    idle.router,
    scaling.router,
    licensing.router,
    cml_login.router,
    insight.router,
    catalogue.router,
    sessions.router,
    tokens.router,
    secret_keys.router,
    settings.router,
    events.router,
)
