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

ROUTER_AND_HOST = """\
lab:
  title: router and host
  version: 0.3.0
nodes:
  - id: n0
    label: r1
    node_definition: iol-xe
    tags: ["serial:5001"]
    x: 0
    y: 0
    interfaces:
      - {id: i0, label: Ethernet0/0, slot: 0, type: physical}
  - id: n1
    label: lan
    node_definition: unmanaged_switch
    tags: [kept]
    x: 200
    y: 0
    interfaces:
      - {id: i0, label: port0, slot: 0, type: physical}
      - {id: i1, label: port1, slot: 1, type: physical}
  - id: n2
    label: pc1
    node_definition: alpine
    tags: ["serial:5002", "vnc:5003"]
    x: 400
    y: 0
    interfaces:
      - {id: i0, label: eth0, slot: 0, type: physical}
links:
  - {id: l0, n1: n0, i1: i0, n2: n1, i2: i0}
  - {id: l1, n1: n1, i1: i1, n2: n2, i2: i0}
"""
"""Three ports that lead to two machines."""
