"""The maintenance of a running worker, on every reconcile, in this order:

1. `desired_state`: a stop or a deletion was requested, and nothing else matters;
2. `drift`: EC2 changed the instance outside LCM, or its address changed;
3. `refresh`: an operator requested a refresh;
4. `monitoring`: the WebSocket monitor, once CML is ready;
5. `metrics`: the load, if the last measurement is old;
6. `license`: a pending license operation;
7. `idle`: the idle check;
8. `scale_down`: whether the fleet can do without the worker.

`steps/running.py` decides the first two. `pipeline.py` runs the others, then `tags` reconciles the tags of
the instance.
"""
