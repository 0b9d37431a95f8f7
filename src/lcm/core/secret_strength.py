"""What may serve as a secret: nothing from an example, and no key that can be guessed."""

from typing import Annotated, Final

from pydantic import AfterValidator, SecretStr

MIN_KEY_CHARACTERS: Final = 32
MIN_DISTINCT: Final = 8
"""Different characters of a key; 32 random hexadecimal digits have twice as many."""

PLACEHOLDERS: Final = ("replace-me", "replaceme", "change-me", "changeme", "placeholder", "your-secret")

_MAKE_ONE: Final = "make one with: openssl rand -hex 32"


def weakness_of_key(key: str) -> str | None:
    """Return what is wrong with a key, without the key; None if it can be used."""
    if is_placeholder(key):
        return f"is a placeholder from an example; {_MAKE_ONE}"
    if len(key) < MIN_KEY_CHARACTERS:
        return f"is shorter than {MIN_KEY_CHARACTERS} characters and can be guessed; {_MAKE_ONE}"
    if len(set(key)) < MIN_DISTINCT:
        return f"repeats a few characters and can be guessed; {_MAKE_ONE}"
    return None


def is_placeholder(secret: str) -> bool:
    """Return whether the secret is what an example has in its place."""
    return any(placeholder in secret.lower() for placeholder in PLACEHOLDERS)


def keys_in(setting: str) -> tuple[str, ...]:
    """Return the keys of a setting: several by commas while one of them is replaced, or none."""
    return tuple(key for part in setting.split(",") if (key := part.strip()))


def _strong_keys(setting: SecretStr) -> SecretStr:
    """Return the keys of a setting, which may be empty. Raises ValueError if one can be guessed."""
    for key in keys_in(setting.get_secret_value()):
        if (weakness := weakness_of_key(key)) is not None:
            raise ValueError(f"the key {weakness}")
    return setting


def _real_password(password: SecretStr) -> SecretStr:
    """Return the password of a setting. Raises ValueError if it is from an example."""
    if is_placeholder(password.get_secret_value()):
        raise ValueError("this is a placeholder from an example; set the real password, or leave it empty")
    return password


StrongKeys = Annotated[SecretStr, AfterValidator(_strong_keys)]
"""A key, or several by commas while one of them is replaced; may be empty."""
RealPassword = Annotated[SecretStr, AfterValidator(_real_password)]
