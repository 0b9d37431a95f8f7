# Generated from `aio` by `make docs`; change that instead.
"""The synchronous client, a module for each kind of resource. Generated from `aio`."""
