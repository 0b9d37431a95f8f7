"""What a running worker gets in every pass, in this order; one file each, and each decides without I/O.

1. `wish`: people want it stopped or deleted, and nothing else matters;
2. `drift`: EC2 did something by itself, or the machine has another address;
3. `refresh`: somebody asked for fresh facts;
4. `watching`: its live connection, once CML is ready;
5. `measuring`: its load, if the last measurement is old;
6. `licensing`: a license operation that is pending;
7. `idling`: whether it is used;
8. `scaling_down`: whether the fleet can do without it.

`steps/running.py` asks the first two, `tending.py` goes through the others and carries out what they say.
"""
