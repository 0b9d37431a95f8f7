"""What other processes learn: keys in the coordination store, and the feed between control planes."""
