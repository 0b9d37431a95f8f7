"""Live monitoring of workers: a WebSocket to each running CML, REST when it fails.

`protocol` says what frames mean, `monitor` keeps one connection, `registry` keeps the monitors,
`polling` stands in while a connection is down, `reporter` tells the control plane, `metrics` asks the
sources that have no live feed.
"""
