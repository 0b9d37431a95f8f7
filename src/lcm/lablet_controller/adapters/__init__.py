"""Implementations of the lablet controller's ports. They translate and decide nothing."""
