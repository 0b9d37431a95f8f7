"""Routes for people: the dashboard, the CLI, scripts."""

from lcm.control_plane.api.public import (
    catalogue,
    cml_login,
    events,
    idle,
    insight,
    lablet_cleanup,
    lablet_definitions,
    lablet_sessions,
    licensing,
    scaling,
    scheduling,
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
    lablet_definitions.router,
    lablet_cleanup.router,
    lablet_sessions.router,
    sessions.router,
    tokens.router,
    secret_keys.router,
    settings.router,
    scheduling.router,
    events.router,
)
