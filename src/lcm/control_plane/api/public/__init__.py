"""Routes for people: the dashboard, the CLI, scripts."""
