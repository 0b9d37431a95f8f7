"""The command `lcm`: arguments in, processes started, lines printed."""
