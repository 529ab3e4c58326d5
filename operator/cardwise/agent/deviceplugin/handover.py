"""What a container is given with its cards: HAMi's variables and mounts, as edits of a CDI device.

HAMi-core reads them where the node has it; else only ``NVIDIA_VISIBLE_DEVICES`` means something, to
NVIDIA's runtime.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from cardwise.model import Share
from cardwise.names import API_GROUP, MODE_MIG

KIND: Final = f"{API_GROUP}/card"
"""Vendor and class of our CDI devices; a device's name is a token that nobody can guess."""
_CDI_VERSION: Final = "0.5.0"
"""The oldest that has all we write, so that an older runtime reads it, too."""

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
NO_CARD: Final = {VISIBLE: "void"}
"""What Allocate says beside a CDI name: a runtime that reads none shows no card, not all."""
TOKEN: Final = f"{API_GROUP}/token"
"""A container's annotation, where its cards are told without CDI: what is else the CDI name's."""

MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT_{}"
CORES_LIMIT: Final = "CUDA_DEVICE_SM_LIMIT"
CACHE: Final = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
OVERSUBSCRIBE: Final = "CUDA_OVERSUBSCRIBE"
UNCONTROLLED: Final = "CUDA_DISABLE_CONTROL"
"""A user's own: HAMi-core is there, and is not loaded into each program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """HAMi-core on this node: the directory that holds it, and which parts are there."""

    directory: str = "/usr/local/vgpu"
    """The same on the node and in the container."""
    file: str = ""
    """The library's name there; empty: this node has no HAMi-core."""
    licensed: bool = False


NO_LIBRARY: Final = Library()


@dataclass(frozen=True, slots=True)
class Mount:
    """A place of the node in the container."""

    host: str
    container: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """What is changed in a container."""

    env: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()


def edits_of(
    shares: Sequence[Share],
    *,
    modes: Iterable[str],
    oversold: bool,
    library: Library,
    cache: str,
    own_env: Mapping[str, str],
) -> Edits:
    """The variables and mounts of one container.

    Args:
        shares: its cards, in the order of the allocation.
        modes: of these cards.
        oversold: whether this node offers more memory than its cards have.
        library: HAMi-core, as this node has it.
        cache: the name of the container's own directory, and of the file that its programs share.
        own_env: what the Pod's author set.
    """
    env = {VISIBLE: ",".join(dict.fromkeys(share.uuid for share in shares))}
    if MODE_MIG in modes:
        return Edits(env=env)
    for position, share in enumerate(shares):
        env[MEMORY_LIMIT.format(position)] = f"{share.memory_mib}m"
    env[CORES_LIMIT] = str(shares[0].cores)
    env[CACHE] = f"{library.directory}/{cache}.cache"
    if oversold:
        env[OVERSUBSCRIBE] = "true"
    if not library.file:
        return Edits(env=env)
    preload = own_env.get(UNCONTROLLED, "").lower() not in ("1", "t", "true")
    return Edits(env=env, mounts=tuple(_mounts(library, cache, preload=preload)))


def _mounts(library: Library, cache: str, *, preload: bool) -> Iterable[Mount]:
    """HAMi-core's, widest first, so that none hides another."""
    place = library.directory
    yield Mount(f"{place}/containers/{cache}", place)
    yield Mount(f"{place}/{library.file}", f"{place}/libvgpu.so", read_only=True)
    yield Mount("/tmp/vgpulock", "/tmp/vgpulock")  # noqa: S108 - HAMi-core's own
    if preload:
        yield Mount(f"{place}/ld.so.preload", "/etc/ld.so.preload", read_only=True)
    if library.licensed:
        yield Mount(f"{place}/license", "/tmp/license", read_only=True)  # noqa: S108
        yield Mount(f"{place}/vgpuvalidator", "/usr/bin/vgpuvalidator", read_only=True)


def cdi_name(token: str) -> str:
    """The full name of a CDI device."""
    return f"{KIND}={token}"


def tokens_of(names: Iterable[str]) -> tuple[str, ...]:
    """The tokens among CDI names; a name of another kind is not ours."""
    return tuple(name.removeprefix(f"{KIND}=") for name in names if name.startswith(f"{KIND}="))


def spec_text(devices: Mapping[str, Edits]) -> bytes:
    """A CDI spec with a device for each token."""
    document = {
        "cdiVersion": _CDI_VERSION,
        "kind": KIND,
        "devices": [
            {"name": token, "containerEdits": _edits(edits)}
            for token, edits in sorted(devices.items())
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def spec_tokens(text: bytes) -> frozenset[str]:
    """The tokens that a spec of ours tells of; none where it is no such text."""
    try:
        return frozenset(str(device["name"]) for device in orjson.loads(text)["devices"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return frozenset()


def _edits(edits: Edits) -> dict[str, Any]:
    written: dict[str, Any] = {"env": [f"{name}={value}" for name, value in edits.env.items()]}
    if edits.mounts:
        written["mounts"] = [
            {
                "hostPath": mount.host,
                "containerPath": mount.container,
                "options": ["ro" if mount.read_only else "rw", "nosuid", "nodev", "bind"],
            }
            for mount in edits.mounts
        ]
    return written
