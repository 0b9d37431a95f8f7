"""CML's REST API: one module per part of it, each a table of routes and the functions behind them.

A function gets a `Call` and returns what becomes the JSON body of a 200, or None for a 204, or an
`Answer` where neither fits; it raises `Refused` for everything else. None of them does I/O.
"""
