"""The only writers. One function each: load, decide with the domain, compare-and-set."""
