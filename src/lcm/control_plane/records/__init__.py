"""What is kept: one module per kind of record, and the caches that follow from them."""
