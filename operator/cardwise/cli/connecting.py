"""How a command that asks a cluster gets there, as people know it from kubectl, and what fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import click

from cardwise import options
from cardwise.errors import ApiError
from cardwise.ports import ClusterReader

T = TypeVar("T")
Json = dict[str, Any]

_NOT_INSTALLED = (
    "the cluster has no GPUNodes, so Cardwise is not installed there: docs/installation.md"
)


def options_of_cluster(command: Callable[..., T]) -> Callable[..., T]:
    """Give a command the options ``--kubeconfig`` and ``--context``."""
    for each in (
        click.option("--context", metavar="NAME", help="The kubeconfig's context."),
        click.option(
            "--kubeconfig",
            type=click.Path(),
            metavar="FILE",
            help="Else $KUBECONFIG, the ServiceAccount of a Pod, or ~/.kube/config.",
        ),
    ):
        command = each(command)
    return command


def namespace_meant(kubeconfig: str | None, context: str | None) -> str:
    """The namespace of the context."""
    # The API server's client takes a second to import: not for those who ask no cluster.
    from cardwise.kube import namespace_of  # noqa: PLC0415

    try:
        return namespace_of(kubeconfig, context)
    except ApiError as error:
        raise options.BadInput(sentence(error)) from error


def asked(
    kubeconfig: str | None, context: str | None, ask: Callable[[ClusterReader], Awaitable[T]]
) -> T:
    """Connect, ask, and hang up.

    Raises:
        BadInput: one sentence: no way there, no right, or what was asked for is not there.
    """
    try:
        return asyncio.run(_asked(kubeconfig, context, ask))
    except ApiError as error:
        raise options.BadInput(sentence(error)) from error


async def _asked(
    kubeconfig: str | None, context: str | None, ask: Callable[[ClusterReader], Awaitable[T]]
) -> T:
    from cardwise.kube import connect  # noqa: PLC0415 - as above
    from cardwise.kube.reader import KubeReader  # noqa: PLC0415

    client = await connect(kubeconfig, context)
    try:
        return await ask(KubeReader(client))
    finally:
        await client.close()


def sentence(error: ApiError) -> str:
    """What went wrong, for a person."""
    if error.status == 401:
        return f"the API server does not accept these credentials: {error}"
    if error.status == 403:
        return f"no permission: {error} (docs/command-line.md lists the rights that are needed)"
    return str(error)


async def all_of(pages: AsyncIterator[list[Json]]) -> list[Json]:
    """Every object of a list."""
    return [document async for page in pages for document in page]


async def gpunodes_of(reader: ClusterReader) -> list[Json]:
    """Every GPUNode.

    Raises:
        ApiError: status 404, with a sentence, where the cluster has no such kind.
    """
    try:
        return await all_of(reader.gpunodes())
    except ApiError as error:
        if error.status == 404:
            raise ApiError(404, _NOT_INSTALLED) from error
        raise


async def together(*asks: Awaitable[T]) -> list[T]:
    """The answers to several questions, asked at once.

    Raises:
        ApiError: of the first that failed; the others are given up.
    """

    async def answer(ask: Awaitable[T]) -> T:
        return await ask

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(answer(ask)) for ask in asks]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return [task.result() for task in tasks]
