"""The HTTP surface: /filter, /preempt, /bind for kube-scheduler; health and metrics for all.

Two applications over one scheduler: the verbs listen on loopback alone, because whoever can call
/bind can place Pods; health and metrics are open to the cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from cardwise.controller.extender.service import Scheduler
from cardwise.controller.reports.metrics import Metrics
from cardwise.controller.watching.watch import Health
from cardwise.errors import BadBody
from cardwise.wire import extender

_Answer = Callable[[bytes], Awaitable[dict[str, Any]]]
_BODY_SECONDS = 5.0
"""How long a body may take from its first byte to its last: kube-scheduler sits beside us. Also
what a caller that sends half of one can make the end of the process wait."""


def verbs(scheduler: Scheduler, metrics: Metrics, health: Health) -> web.Application:
    """The application that kube-scheduler talks to, health and metrics included."""
    known: frozenset[str] = frozenset()

    async def answer_filter(body: bytes) -> dict[str, Any]:
        nonlocal known
        call = extender.filter_call_in(body, known)
        result = scheduler.filter(call)
        if call.about.is_read:
            known = call.asked
        return result

    async def answer_preempt(body: bytes) -> dict[str, Any]:
        return scheduler.preempt(extender.preempt_call(extender.decoded(body)))

    async def answer_bind(body: bytes) -> dict[str, Any]:
        call = extender.bind_call(extender.decoded(body))
        return extender.bind_result(await scheduler.bind(call))

    app = web.Application(client_max_size=extender.BODY_BYTES)
    for verb, answer in [
        ("filter", answer_filter),
        ("preempt", answer_preempt),
        ("bind", answer_bind),
    ]:
        app.router.add_post(f"/{verb}", _handler(verb, answer, metrics))
    _add_reports(app, metrics, health)
    return app


def reports(metrics: Metrics, health: Health) -> web.Application:
    """The application that probes and Prometheus talk to."""
    app = web.Application()
    _add_reports(app, metrics, health)
    return app


def _handler(
    verb: str, answer: _Answer, metrics: Metrics
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        with metrics.timed(verb) as timer:
            try:
                result = await answer(await _body(request))
            except web.HTTPRequestTimeout:
                timer.result = "bad"
                text = f"The body did not come within {_BODY_SECONDS:.0f} s.\n"
                return web.Response(status=408, text=text)
            except BadBody as error:
                timer.result = "bad"
                return web.Response(status=400, text=f"{error}\n")
            except web.RequestPayloadError:
                timer.result = "bad"
                return web.Response(status=400, text="The body is not packed as it says.\n")
            except web.HTTPRequestEntityTooLarge:
                timer.result = "bad"
                limit = extender.BODY_BYTES
                return web.Response(status=413, text=f"The body has more than {limit} bytes.\n")
            try:
                written = orjson.dumps(result)
            except orjson.JSONEncodeError:
                # What is read may be nested four times as deep as what can be written back.
                timer.result = "bad"
                return web.Response(status=400, text="A node of the body is nested too deep.\n")
            timer.result = "error" if result.get("Error") else "ok"
            return web.Response(body=written, content_type="application/json")

    return handle


async def _body(request: web.Request) -> bytes:
    """The whole body.

    Raises:
        web.HTTPRequestTimeout: its sender is too slow.
        BadBody: its sender went away.
    """
    try:
        if request.content.is_eof():  # it is here, as it mostly is: nothing is waited for
            return await request.read()
        async with asyncio.timeout(_BODY_SECONDS):
            return await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout from error
    except ConnectionError as error:
        raise BadBody("The body ended in the middle.") from error


def _add_reports(app: web.Application, metrics: Metrics, health: Health) -> None:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def livez(_: web.Request) -> web.Response:
        return _verdict(health.not_live())

    async def readyz(_: web.Request) -> web.Response:
        return _verdict(health.not_ready())

    async def show_metrics(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": metrics.CONTENT_TYPE})
        await answer.prepare(request)
        for part in metrics.parts():
            if part:  # an empty one would end the answer
                await answer.write(part)
            await asyncio.sleep(0)
        await answer.write_eof()
        return answer

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)


def _verdict(why_not: str) -> web.Response:
    return web.Response(status=503 if why_not else 200, text=f"{why_not or 'ok'}\n")
