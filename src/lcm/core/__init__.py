"""lcm-core: the machinery every controller shares. It has never heard of a worker.

Hosted services (`hosted_service`), the reconcile loop (`reconciliation`, on `work_queue`, `backoff`
and `results`), leadership (`election`), reacting to changes (`watch`, with `debounce`), coordination
(`kv`), and the ports to time and chance (`clock`, `chance`).
"""
