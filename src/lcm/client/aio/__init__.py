"""The asynchronous client, a module for each kind of resource. `sync` is generated from it."""
