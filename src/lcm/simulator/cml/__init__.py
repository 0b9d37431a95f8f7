"""Simulated CML servers, one per running EC2 instance, all in one process.

Start reading in `server.py`: one server, requests in, answers and events out, without sockets or a clock.
It uses `labs.py`, `licensing.py` and `people.py`; `api/` is its REST API. `site.py` puts a server on
the network, `fleet.py` owns the listeners and the time, `control.py` injects faults.
"""
