"""Publishing to other processes: keys in the coordination store, and the feed between control planes."""
