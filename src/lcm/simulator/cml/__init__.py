"""Simulated CML servers, one per running EC2 instance, all in one process.

`server.py` answers requests without touching a socket; `fleet.py` owns the listeners.
"""
