"""Lablet Cloud Manager."""

from typing import Final

VERSION: Final = "0.1.0"
"""The one version: of wheel, dashboard, chart, image and API."""
