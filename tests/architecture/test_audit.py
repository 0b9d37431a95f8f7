"""`make audit` never takes a database that does not answer for one that knows of nothing."""

import pytest
from tools.audit import Audit, conclude


@pytest.mark.parametrize(
    ("audits", "code", "said"),
    [
        ([Audit("lock", 9, 0, [])], 0, "no known advisory for 9 packages"),
        ([Audit("lock", 9, 0, ["aiohttp 3.12: CVE-1, fixed in 3.13.4"])], 1, "CVE-1"),
        ([Audit("lock", 9, 1, [])], 2, "NOT CHECKED, no advisory database answered for 1 of 9 packages"),
        ([Audit("lock", 0, 1, [])], 2, "NOT CHECKED"),
        ([Audit("one", 9, 0, []), Audit("two", 0, 1, [])], 2, "two: NOT CHECKED"),
        ([Audit("one", 0, 1, []), Audit("two", 9, 0, ["a hole"])], 1, "one: NOT CHECKED"),
    ],
)
def test_what_could_not_be_looked_up_is_not_taken_for_safe(
    audits: list[Audit], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conclude(audits) == code
    assert said in capsys.readouterr().out
