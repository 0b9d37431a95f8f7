"""`python -m lcm` is the command `lcm`."""

from lcm.cli.app import main

main()
