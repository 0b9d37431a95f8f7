"""The event stream to browsers (SSE)."""
