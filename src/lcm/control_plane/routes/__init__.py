"""HTTP in, commands and queries, HTTP out. Public routes for people, internal ones for controllers."""
