"""The access token of the model hub in the system's keyring; nowhere else, also where there is no keyring."""

from __future__ import annotations

from tunesmith_core import hub_token
from tunesmith_core.errors import TunesmithError

SERVICE, NAME = "Tunesmith", "hugging-face"


def use_keyring() -> None:
    """Have core ask the keyring when something of the hub is asked for."""
    hub_token.add_source(load, keyring_name)


def keyring_name() -> str:
    """Return what the keyring of this system is called."""
    import keyring

    return str(keyring.get_keyring().name)


def load() -> str:
    """Return the token, "" where there is none or no keyring. It may wait for a person who unlocks the keyring."""
    # Loaded on first use: it looks for the services of the desktop.
    import keyring
    from keyring.errors import KeyringError

    try:
        return keyring.get_password(SERVICE, NAME) or ""
    except KeyringError:
        return ""


def save(token: str) -> None:
    """Keep a token; "" forgets it.

    Raises:
        EnvironmentProblem: `keyring-missing` when the system keeps no secrets.
    """
    import keyring
    from keyring.errors import KeyringError, PasswordDeleteError

    try:
        if token:
            keyring.set_password(SERVICE, NAME, token)
        else:
            keyring.delete_password(SERVICE, NAME)
    except PasswordDeleteError:
        return
    except KeyringError as error:
        raise TunesmithError(
            "keyring-missing", "The keyring refused the token ({reason}).", reason=type(error).__name__
        ) from error
