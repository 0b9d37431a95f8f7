"""Routes for controllers and other control planes, under `/api/internal`."""
