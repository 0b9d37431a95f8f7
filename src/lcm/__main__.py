"""`python -m lcm` is the command `lcm`."""

from lcm.cli.entry import main

main()
