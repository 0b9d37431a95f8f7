"""Where the command `lcm` begins. The version is printed without loading the commands."""

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        from lcm.cli.about import version_line

        print(version_line())
        return
    from lcm.cli.app import main as run

    run()
