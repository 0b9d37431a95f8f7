"""Questions about the records; they change nothing."""
