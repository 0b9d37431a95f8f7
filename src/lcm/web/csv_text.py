"""Tables for spreadsheets."""

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Final

MEDIA_TYPE: Final = "text/csv"
_BEGINS_A_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The rows below their header, lines ending as RFC 4180 says. None is an empty cell.

    A spreadsheet would run a text that begins like a formula: it gets a leading apostrophe.
    """
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows([_cell(each) for each in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_BEGINS_A_FORMULA) else text
