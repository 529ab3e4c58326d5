"""A caller that speaks no HTTP is a line in the log at most, whichever server it came to."""

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web

from cardwise.controller import server
from cardwise_webhook import main as webhook


@pytest.mark.parametrize(
    "runner",
    [
        pytest.param(lambda app: server.runner(app, finish_seconds=1.0), id="the controller"),
        pytest.param(webhook._runner, id="the webhook"),
    ],
)
@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
async def test_a_caller_that_speaks_no_http_is_a_line(
    runner: Callable[[web.Application], web.AppRunner],
    level: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Red when a runner is made without ``callers.log``."""
    caplog.set_level(level, "cardwise")
    served = runner(web.Application())
    await served.setup()
    await web.TCPSite(served, "127.0.0.1", 0).start()
    reader, writer = await asyncio.open_connection(*served.addresses[0])
    writer.write(b"GET /\xff HTTP/7\r\n\r\n")

    assert b" 400 " in await reader.readline()

    writer.close()
    await served.cleanup()
    told = [record for record in caplog.records if not record.name.startswith("asyncio")]
    assert [record.levelname for record in told] == ["DEBUG"] * (level == "DEBUG")
    assert not any(record.exc_info for record in told)
    assert not any("\n" in record.getMessage() for record in told)
