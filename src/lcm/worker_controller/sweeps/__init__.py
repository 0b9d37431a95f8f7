"""Sweeps over the whole fleet, on the leader: discovery, orphans, retention."""
