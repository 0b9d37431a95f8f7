"""Records and caches: one module per kind of record, and what this process keeps in memory."""
