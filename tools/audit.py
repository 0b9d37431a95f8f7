"""Looks the locked packages up in advisory databases: pip-audit for Python, npm for the dashboard.

Ends with 1 if there is an advisory, and with 2 if something could not be looked up: nothing is known of that.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PIP_AUDIT = "pip-audit==2.9.0"
SECONDS = 600


class Audit(NamedTuple):
    """What is known of the packages of one lock file."""

    name: str
    packages: int
    unchecked: int
    advisories: list[str]


def audit_python(uv: str) -> Audit:
    """A package that the index has no advisories for is unchecked, whatever pip-audit concludes from that."""
    command = [uv, "tool", "run", "--quiet", PIP_AUDIT, "--disable-pip", "--require-hashes"]
    report = _report([*command, "--progress-spinner=off", "--format=json", "-r", "requirements.lock"], ROOT)
    found = report.get("dependencies", [])
    advisories = [
        f"{each['name']} {each['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or '-'}"
        for each in found
        for hole in each.get("vulns", [])
    ]
    skipped = sum("skip_reason" in each for each in found)
    return Audit("requirements.lock", len(found), skipped if found else 1, advisories)


def audit_npm() -> Audit:
    """The registry answers for all packages, or for none."""
    report = _report(["npm", "audit", "--package-lock-only", "--json"], ROOT / "ui")
    total = report.get("metadata", {}).get("dependencies", {}).get("total", 0)
    holes = report.get("vulnerabilities", {})
    advisories = [f"{name}: {hole['severity']}, {hole['range']}" for name, hole in holes.items()]
    return Audit("ui/package-lock.json", total, 0 if "metadata" in report else 1, advisories)


def _report(command: list[str], folder: Path) -> dict[str, Any]:
    """What the command prints, whatever its exit code; empty if that is no report."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def conclude(audits: list[Audit]) -> int:
    """Print what was found and what was not looked up; return the exit code."""
    for audit in audits:
        for advisory in audit.advisories:
            print(f"{audit.name}: {advisory}")
        if audit.unchecked:
            what = f"{audit.unchecked} of {audit.packages} packages" if audit.packages else "any package"
            print(f"{audit.name}: NOT CHECKED, no advisory database answered for {what}")
        elif not audit.advisories:
            print(f"{audit.name}: no known advisory for {audit.packages} packages")
    if any(audit.advisories for audit in audits):
        return 1
    return 2 if any(audit.unchecked for audit in audits) else 0


if __name__ == "__main__":
    sys.exit(conclude([audit_python(sys.argv[1]), audit_npm()]))
