"""The plan of a fleet: what has to be requested so that it is as documents say."""
