"""The serving certificate: read from a mounted Secret, and read again when that changes.

Every handshake is given the certificate that was read last. Connections that stand keep theirs, so
a renewal costs none of them a request.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from cardwise_webhook.metrics import Metrics

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_OVERDUE = 5 / 6
"""The part of a certificate's life after which it should have been renewed long ago."""
_REMIND_SECONDS = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """A certificate in use."""

    files: tuple[bytes, bytes]
    """What it was read from."""
    context: ssl.SSLContext
    begins: float
    """Seconds since 1970, as ``expires``."""
    expires: float


class Certificate:
    """What TLS handshakes are given, kept up to date with the files of a directory."""

    def __init__(
        self, directory: Path, metrics: Metrics, *, unix: Callable[[], float] = time.time
    ) -> None:
        """Make it without a certificate; `look` finds one.

        Args:
            directory: holds ``tls.crt`` and ``tls.key``.
            metrics: told of every change.
            unix: seconds since 1970.
        """
        self._certificate = directory / "tls.crt"
        self._key = directory / "tls.key"
        self._metrics = metrics
        self._unix = unix
        self._loaded: _Loaded | None = None
        self._found = asyncio.Event()
        self._told = ""
        self._reminded = 0.0
        self.trouble = "the certificate was not looked for yet"
        """Why what lies in the directory can't be used; empty where it is in use."""
        self.context = _context()
        """For the server, once there is a certificate."""
        self.context.sni_callback = self._hand_over

    async def found(self) -> None:
        """Return as soon as there is a certificate."""
        await self._found.wait()

    @property
    def missing(self) -> str:
        """Why there is none that could be served; empty when there is."""
        return "" if self._loaded else f"there is no certificate to serve yet: {self.trouble}"

    async def follow(self) -> None:
        """Look at the files every second, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Take what lies in the directory into use if it is new and good."""
        try:
            files = self._certificate.read_bytes(), self._key.read_bytes()
            if self._loaded is None or files != self._loaded.files:
                self._take(files)
        except OSError as error:
            # Also while kubelet exchanges the directory under us: the next look finds the new one.
            self._refuse(f"{error.filename or self._certificate}: {error.strerror or error}")
        except (ValueError, x509.InvalidVersion) as error:
            self._refuse(f"{self._certificate} is no certificate: {_first_line(error)}")
        else:
            self.trouble = self._told = ""
        self._remind()

    def _take(self, files: tuple[bytes, bytes]) -> None:
        leaf = x509.load_pem_x509_certificates(files[0])[0]
        context = _context()
        try:
            # It fails where the key is not that of the certificate. Of a file written in between
            # the next look knows, because it is not what ``files`` holds.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except ssl.SSLError as error:
            raise OSError(
                error.errno, f"it can't be used with the certificate: {error.reason}", self._key
            ) from error
        expires = leaf.not_valid_after_utc
        self._loaded = _Loaded(
            files=files,
            context=context,
            begins=leaf.not_valid_before_utc.timestamp(),
            expires=expires.timestamp(),
        )
        self._reminded = 0.0
        self._metrics.certificate_loaded(expires.timestamp())
        self._found.set()
        _log.info("serving the certificate %x, good until %s", leaf.serial_number, expires)

    def _refuse(self, why: str) -> None:
        self.trouble = why
        if why == self._told:
            return
        self._told = why
        if self._loaded is None:
            _log.warning("no certificate yet: %s", why)
            return
        self._metrics.certificate_refused()
        _log.warning("the certificate in use is kept, because the new one can't be: %s", why)

    def _remind(self) -> None:
        """Say again and again that a renewal is overdue."""
        now, loaded = self._unix(), self._loaded
        if loaded is None or now < self._reminded + _REMIND_SECONDS:
            return
        if now > loaded.begins + _OVERDUE * (loaded.expires - loaded.begins):
            self._reminded = now
            expires = datetime.fromtimestamp(loaded.expires, UTC)
            _log.warning(
                "the certificate %s at %s and was not renewed: the API server will refuse it, and "
                "no Pod with cards can be created then",
                "expired" if now >= loaded.expires else "expires",
                expires,
            )

    def _hand_over(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _: ssl.SSLContext
    ) -> None:
        """Give a handshake the newest certificate, whatever server name it asks for."""
        if self._loaded is not None:
            connection.context = self._loaded.context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # of 1.2 and later
    context.set_alpn_protocols(["http/1.1"])
    return context


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
