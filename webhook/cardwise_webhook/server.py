"""The HTTP surface: /mutate for the API server; health and metrics for all.

Two applications, because the API server speaks TLS to a certificate that may not be there yet,
and that must be told by somebody: probes and Prometheus are answered without one.
"""

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from cardwise.errors import BadBody
from cardwise.settings import Settings
from cardwise_webhook.certs import Certificate
from cardwise_webhook.metrics import Metrics, Timer
from cardwise_webhook.review import BODY_BYTES, Answer, Result, answer

_log = logging.getLogger(__name__)
_SECONDS = 5.0
"""For one request, head to answer, unless the API server gives it less."""
_TIMEOUT = re.compile(r"([1-9][0-9]?)s")
"""The API server writes whole seconds, 30 at most."""


class Health:
    """Whether this process can serve, and whether it is serving."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._begun = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.stopping = False
        """SIGTERM came: what still comes is answered, and nobody should send more."""

    @contextmanager
    def serving(self) -> Iterator[None]:
        """One request has begun, and ends with the block."""
        self._begun += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._begun -= 1
            if not self._begun:
                self._idle.set()

    async def idle(self) -> None:
        """Return as soon as every request that has begun is answered."""
        await self._idle.wait()

    def not_ready(self) -> str:
        """Why requests should go elsewhere; empty when they should not."""
        if self.stopping:
            return "the webhook is stopping"
        return self._certificate.missing


def mutating(settings: Settings, metrics: Metrics, health: Health) -> web.Application:
    """The application that the API server talks to, by TLS."""

    async def mutate(request: web.Request) -> web.Response:
        with health.serving(), metrics.timed() as timer:
            response = await _mutate(request, settings, timer)
        if health.stopping:
            # The API server then opens its next connection to another replica.
            response.force_close()
        return response

    app = web.Application(client_max_size=BODY_BYTES)
    app.router.add_post("/mutate", mutate)
    _add_probes(app, health)
    return app


def reports(metrics: Metrics, health: Health) -> web.Application:
    """The application that probes and Prometheus talk to, by plain HTTP."""

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": metrics.CONTENT_TYPE})

    app = web.Application()
    _add_probes(app, health)
    app.router.add_get("/metrics", show_metrics)
    return app


async def _mutate(request: web.Request, settings: Settings, timer: Timer) -> web.Response:
    seconds = _allowed(request.query.get("timeout", ""))
    timer.result = Result.BAD
    try:
        async with asyncio.timeout(seconds):
            body = await _body(request)
        told = answer(body, settings)
    except TimeoutError:
        timer.result = Result.LATE
        return _refusal(504, f"The body did not come within {seconds:g} s.")
    except web.HTTPRequestEntityTooLarge:
        return _refusal(413, f"The body has more than {BODY_BYTES} bytes.")
    except web.RequestPayloadError:
        return _refusal(400, "The body is not packed as it says.")
    except ConnectionError:
        return _refusal(400, "The body ended in the middle.")
    except BadBody as error:
        return _refusal(400, str(error))
    except Exception:
        timer.result = Result.ERROR
        raise
    timer.result = told.result
    _tell(told)
    return web.Response(body=told.body, content_type="application/json")


async def _body(request: web.Request) -> bytes:
    if (request.content_length or 0) > BODY_BYTES:
        raise web.HTTPRequestEntityTooLarge(BODY_BYTES, request.content_length or 0)
    return await request.read()


def _allowed(timeout: str) -> float:
    """Seconds for a request, by the ``timeout`` that the API server writes into the address."""
    given = _TIMEOUT.fullmatch(timeout)
    return min(float(given[1]), _SECONDS) if given else _SECONDS


def _refusal(status: int, sentence: str) -> web.Response:
    """An answer to what is no review; what is still to come of a body is not waited for."""
    _log.info("a request was answered with %d: %s", status, sentence)
    response = web.Response(status=status, text=f"{sentence}\n")
    response.force_close()
    return response


def _tell(told: Answer) -> None:
    if told.result is Result.DENIED:
        _log.info("%s: denied: %s", told.about, told.message)
    else:
        _log.debug("%s: %s", told.about, told.result)


def _add_probes(app: web.Application, health: Health) -> None:
    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        why_not = health.not_ready()
        return web.Response(status=503 if why_not else 200, text=f"{why_not or 'ok'}\n")

    app.router.add_get("/healthz", alive)
    app.router.add_get("/livez", alive)
    app.router.add_get("/readyz", readyz)
