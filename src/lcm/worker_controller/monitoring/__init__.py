"""Monitoring of workers: a WebSocket to each running CML, REST when it fails.

`protocol` decodes frames, `monitor` keeps one connection, `registry` keeps the monitors, `polling` is the
REST fallback while a connection is down, `reporter` reports to the control plane, `metrics` reads the
sources that have no WebSocket feed.
"""
