"""Reads over records and caches; they change nothing."""
