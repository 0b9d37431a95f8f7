"""The one door to the control plane: what travels through it (`schemas`) and who knocks (`client`)."""
