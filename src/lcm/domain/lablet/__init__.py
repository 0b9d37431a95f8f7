"""Lablets, pure: what a lab needs, who runs it when, and on which worker.

Read `definition` and `topology` for the template of a lab, `states` and `session` for one run of it,
`timeslot` and `claim` for what it takes, `snapshot`, `filters`, `packing` and `placement` for its worker.
"""
