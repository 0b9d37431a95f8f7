"""Topologies that are small enough for every worker of the tests."""

TWO_ALPINES = """\
lab:
  title: two hosts
  version: 0.1.0
nodes:
  - id: n0
    label: left
    node_definition: alpine
    cpus: 1
    ram: 256
    x: 0
    y: 0
    interfaces:
      - {id: i0, label: eth0, slot: 0, type: physical}
  - id: n1
    label: right
    node_definition: alpine
    cpus: 1
    ram: 256
    x: 200
    y: 0
    interfaces:
      - {id: i0, label: eth0, slot: 0, type: physical}
links:
  - {id: l0, n1: n0, i1: i0, n2: n1, i2: i0}
"""
