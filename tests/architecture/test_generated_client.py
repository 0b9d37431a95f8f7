"""The synchronous client is the asynchronous one without its asynchrony."""

from tools.generate_client import TARGET, modules


def test_the_synchronous_client_is_up_to_date() -> None:
    written = {path.name: path.read_text() for path in TARGET.glob("*.py")}
    assert written == modules(), "run 'make docs'"
