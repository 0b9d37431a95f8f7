"""No known secret leaves the process in a log line, in whatever form."""

import base64
import io
import json
import logging
from urllib.parse import quote

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from lcm.core.redaction import MASK, RedactingStream, Redactor, forms_of

SECRET = 'pa"ss wörd/+&'


def test_a_known_secret_is_blanked_out_in_every_form() -> None:
    redactor = Redactor()
    redactor.protect(SECRET)
    encoded = base64.b64encode(SECRET.encode()).decode()
    for form in (SECRET, encoded, quote(SECRET, safe=""), json.dumps(SECRET), repr(SECRET)):
        cleaned = redactor.clean(f"login with {form} failed")
        assert MASK in cleaned
        assert not [known for known in forms_of(SECRET) if known in cleaned]


@given(st.text(min_size=6), st.text())
def test_whatever_the_secret_and_the_text_it_is_not_in_what_is_written(secret: str, text: str) -> None:
    redactor = Redactor()
    redactor.protect(secret)
    cleaned = redactor.clean(text + secret + text)
    assert secret not in cleaned.replace(MASK, "\0")


def test_tokens_are_recognised_by_their_shape() -> None:
    redactor = Redactor()
    jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiI0MiJ9.c2lnbmF0dXJl"
    token = "lcm_" + "x" * 43
    assert redactor.clean(f"Authorization: Bearer {jwt} or {token}!") == (
        f"Authorization: Bearer {MASK} or {MASK}!"
    )


def test_ordinary_text_stays_as_it_is() -> None:
    redactor = Redactor()
    redactor.protect("abc")
    for text in ("abc", "lcm_session expired", "worker abc is running\n"):
        assert redactor.clean(text) == text


@pytest.mark.parametrize("nested", [False, True])
def test_a_traceback_is_cleaned_too(nested: bool) -> None:
    redactor, written = Redactor(), io.StringIO()
    redactor.protect("canary-secret")
    handler = logging.StreamHandler(RedactingStream(written, redactor))
    logger = logging.getLogger("test_redaction")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        try:
            raise ValueError("GET https://admin:canary-secret@host/")
        except ValueError as error:
            if nested:
                raise RuntimeError("it failed") from error
            raise
    except Exception:
        logger.exception("oh")
    finally:
        logger.removeHandler(handler)
    assert "canary-secret" not in written.getvalue()
    assert f"admin:{MASK}@host" in written.getvalue()


def test_structured_lines_are_cleaned_too() -> None:
    redactor, written = Redactor(), io.StringIO()
    redactor.protect("canary-secret")
    logger = structlog.PrintLogger(RedactingStream(written, redactor))  # type: ignore[arg-type]
    logger.msg(json.dumps({"event": "login", "password": "canary-secret"}))
    assert json.loads(written.getvalue()) == {"event": "login", "password": MASK}
