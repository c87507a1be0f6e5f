"""What the network does to a request, in words, and when to try again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar
from urllib import request
from urllib.parse import urlsplit

import httpx2
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message

PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which the same request may succeed a little later."""

NO_ACCESS_TO_PROXY = 407

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Retry:
    """How long the network is waited for.

    Attributes:
        connect_s: until a server answers at all.
        stall_s: without a byte.
        tries: in a row without a byte.
        pause_s: before the second try; it doubles from then on.
        longest_pause_s: up to here.
        longest_wait_s: that a server may ask for.
        answer_s: until a whole answer is there; name servers and many addresses know no other limit.
    """

    connect_s: float = 15.0
    stall_s: float = 30.0
    tries: int = 8
    pause_s: float = 1.0
    longest_pause_s: float = 30.0
    longest_wait_s: float = 600.0
    answer_s: float = math.inf

    @property
    def timeout(self) -> httpx2.Timeout:
        """The same as httpx takes it."""
        return httpx2.Timeout(self.stall_s, connect=self.connect_s)


ASKING = Retry(connect_s=4.0, stall_s=6.0, tries=2, pause_s=1.0, longest_pause_s=1.0, longest_wait_s=5.0, answer_s=7.0)
"""While a person looks at the window and nothing is lost: `Retry()` is for a transfer that has begun."""


class Stopped(Exception):
    """A stop came while something was waited for."""


class WrongAnswer(Exception):
    """A server sent something else than what was asked for."""


OF_NETWORK = (httpx2.HTTPError, HfHubHTTPError, OfflineModeIsEnabled, WrongAnswer)
"""What a request raises."""


class Attempts:
    """Counts what fails in a row, and waits between.

    Args:
        retry: how long.
        about: the hub id, for errors.
        page: of the repository, for errors.
        stop: ends a wait.
        on_wait: called with the error and the seconds before each wait.
    """

    def __init__(
        self,
        retry: Retry,
        about: str,
        page: str,
        stop: threading.Event,
        on_wait: Callable[[TunesmithError, float], object],
    ) -> None:
        self._retry, self._about, self._page = retry, about, page
        self._stop, self._on_wait = stop, on_wait
        self._failed = 0

    def progressed(self) -> None:
        """Something arrived: earlier failures no longer count."""
        self._failed = 0

    def failed(self, error: Exception) -> None:
        """Wait before the next try.

        Raises:
            TunesmithError: when there is no sense in one. Stopped: when a stop came.
        """
        problem = explained(error, self._about, self._page)
        self._failed += 1
        asked_s = asked_pause_s(error)
        if not is_passing(error) or self._failed >= self._retry.tries or asked_s > self._retry.longest_wait_s:
            raise problem from error
        pause_s = asked_s or min(self._retry.pause_s * 2 ** (self._failed - 1), self._retry.longest_pause_s)
        self._on_wait(problem, pause_s)
        if self._stop.wait(pause_s):
            raise Stopped

    def run(self, request: Callable[[], Result]) -> Result:
        """Return what a request returns, tried again as often as makes sense."""
        while True:
            try:
                return _within(self._retry.answer_s, request)
            except (*OF_NETWORK, ValueError, TypeError) as error:
                self.failed(error)


def _within(seconds: float, request: Callable[[], Result]) -> Result:
    """Return what a request returns. Raises a timeout when that takes too long; the request is left to itself."""
    if seconds == math.inf:
        return request()
    answer: Future[Result] = Future()

    def ask() -> None:
        try:
            answer.set_result(request())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=ask, name="ask-hub", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        raise httpx2.TimeoutException("no whole answer in time") from error


def is_passing(error: Exception) -> bool:
    """Return whether the same request may succeed a little later."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in PASSING_STATUS
    return isinstance(error, httpx2.TransportError | WrongAnswer) and not _is_of_proxy(error)


def asked_pause_s(error: Exception) -> float:
    """Return how long the server asks to wait, 0 when it does not."""
    text = error.response.headers.get("Retry-After", "") if isinstance(error, HfHubHTTPError) else ""
    return float(text) if text.strip().isdigit() else 0.0


def _is_of_proxy(error: Exception) -> bool:
    return isinstance(error, httpx2.ProxyError) or _is_of_certificate(error)


def _is_of_certificate(error: Exception) -> bool:
    return "CERTIFICATE" in str(error).upper()


def explained(error: Exception, about: str, page: str) -> TunesmithError:
    """Return what the network did, for a person. A token is in none of it, nor a password of a proxy."""
    if isinstance(error, OfflineModeIsEnabled):
        return TunesmithError(
            "hub-offline",
            "{id}: the offline switch is on.",
            hint="Turn off Work offline in the settings, remove the variable HF_HUB_OFFLINE if it is set, or choose a "
            "model on this computer.",
            id=about,
        )
    if isinstance(error, HfHubHTTPError):
        return _answered(error, about, page)
    if isinstance(error, httpx2.TransportError):
        return _unconnected(error, page)
    return TunesmithError("hub-answer-wrong", "{id}: {reason}", id=about, reason=_wrong(error))


def _unconnected(error: httpx2.TransportError, page: str) -> TunesmithError:
    """Return why nothing came: the certificate, the proxy, or the network."""
    host, proxy = _host(page), _host(_proxy_for(page))
    if _is_of_certificate(error):
        return TunesmithError(
            "hub-ssl-or-proxy",
            "The certificate of {host} is not trusted.",
            hint="Ask whoever runs your network for its certificate and name the file in the variable SSL_CERT_FILE.",
            host=host,
        )
    if isinstance(error, httpx2.ProxyError):
        return _refused_by_proxy(page, wants_password=str(NO_ACCESS_TO_PROXY) in str(error))
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout) and proxy:
        return TunesmithError("hub-ssl-or-proxy", "The proxy {proxy} can't be reached.", proxy=proxy)
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return TunesmithError("hub-offline", "{host} can't be reached.", host=host)
    if isinstance(error, httpx2.TimeoutException):
        return TunesmithError("hub-offline", "{host} sent nothing for too long.", host=host)
    return TunesmithError("hub-offline", "The connection to {host} broke.", host=host)


def _refused_by_proxy(page: str, *, wants_password: bool) -> TunesmithError:
    proxy = _host(_proxy_for(page))
    if not wants_password:
        return TunesmithError("hub-ssl-or-proxy", "The proxy {proxy} refused the connection.", proxy=proxy)
    return TunesmithError(
        "hub-ssl-or-proxy",
        "The proxy {proxy} asks for a user name and password.",
        hint="Set it under Settings > Network, as in http://user:password@proxy.example:8080.",
        proxy=proxy,
    )


def _proxy_for(address: str) -> str:
    """Return the proxy that an address is asked through, as the variables or the system say; "" for none."""
    parts = urlsplit(address)
    found = request.getproxies()
    if not parts.hostname or request.proxy_bypass(parts.netloc):
        return ""
    return found.get(parts.scheme) or found.get("all", "")


def _host(address: str) -> str:
    """Return host and port of an address, which may hold a password."""
    return urlsplit(address).netloc.rpartition("@")[2]


def _wrong(error: Exception) -> str:
    said = error.args[0] if isinstance(error, WrongAnswer) and error.args else None
    return said if isinstance(said, Message) else Message("the answer is not what a hub sends")


def _answered(error: HfHubHTTPError, about: str, page: str) -> TunesmithError:
    status = error.response.status_code
    if isinstance(error, RevisionNotFoundError):
        hint = "Check the revision: the name of a branch or tag, or a commit."
        return TunesmithError("hub-not-found", "{id} has no such revision.", hint=hint, link=page, id=about)
    if status == NO_ACCESS_TO_PROXY:
        return _refused_by_proxy(page, wants_password=True)
    if isinstance(error, GatedRepoError) or status == 403:
        return _gated(error, about, page)
    # Without a token, a hub doesn't say whether a private repository is there: 401 stands for a wrong name as well.
    if status == 404 or isinstance(error, RepositoryNotFoundError):
        return TunesmithError("hub-not-found", "The hub has no {id}.", id=about)
    if status == 401 and _sent_token(error):
        return TunesmithError("hub-token-refused", "{host} did not accept the access token.", host=_host(page))
    if status == 401:
        return _gated(error, about, page)
    if status in PASSING_STATUS:
        return TunesmithError("hub-busy", "{id}: the hub answered {status}.", id=about, status=status)
    return TunesmithError("hub-answer-wrong", "{id}: the hub answered {status}.", id=about, status=status)


def _gated(error: HfHubHTTPError, about: str, page: str) -> TunesmithError:
    if not _sent_token(error):
        return TunesmithError("hub-gated-401", "The hub asks for an access token for {id}.", link=page, id=about)
    return TunesmithError(
        "hub-gated-401",
        "The account of your access token has no access to {id}.",
        hint="Accept the model's license on its page with this account, then try again. Some owners grant access by "
        "hand. A fine-grained token also needs the permission to read gated repositories.",
        link=page,
        id=about,
    )


def _sent_token(error: HfHubHTTPError) -> bool:
    return "Authorization" in error.response.request.headers
