"""HTTP in, commands and queries, HTTP out."""
