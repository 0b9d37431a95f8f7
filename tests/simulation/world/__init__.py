"""The whole system in virtual time: processes, network, store, EC2 and CML, with faults at every call."""
