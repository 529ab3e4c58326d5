"""Container images made by hand: an archive in OCI's layout, for `ctr images import`."""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PAUSE: Final = "cardwise.test/pause:1"
BUSYBOX: Final = "cardwise.test/busybox:1"
IMAGE_ENV: Final = "NVIDIA_VISIBLE_DEVICES=all"
"""As NVIDIA's own images have it: without a word from the node, a container sees every card."""

_LAYOUT: Final = "application/vnd.oci.image.{}.v1+json"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_APPLETS: Final = ("sh", "sleep", "env", "cat", "ls", "true", "false", "test", "echo", "grep")


@dataclass(frozen=True)
class Image:
    """A name, a layer (a tar archive), and what a container of it runs and finds."""

    name: str
    layer: bytes
    command: Sequence[str] = ()
    env: Sequence[str] = ()
    user: str = ""


def write_busybox(archive: Path, busybox: Path) -> None:
    """Write busybox under two names: as what holds a Pod's sandbox, and to run things in."""
    layer = _layer(busybox)
    env = ["PATH=/bin", IMAGE_ENV]
    write(
        archive,
        Image(PAUSE, layer, ["/bin/sleep", "2147483647"], env),
        Image(BUSYBOX, layer, ["/bin/sh"], env),
    )


def write(archive: Path, *images: Image) -> None:
    """Write images of one layer each into one archive."""
    blobs, manifests = {}, []
    for image in images:
        config = _json(
            {
                "architecture": _ARCHITECTURES[platform.machine()],
                "os": "linux",
                "config": {
                    "Cmd": list(image.command),
                    "Env": list(image.env),
                    "User": image.user,
                },
                "rootfs": {"type": "layers", "diff_ids": [_digest(image.layer)]},
            }
        )
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": _LAYOUT.format("manifest"),
                "config": _descriptor(_LAYOUT.format("config"), config),
                "layers": [
                    _descriptor("application/vnd.oci.image.layer.v1.tar", image.layer),
                ],
            }
        )
        blobs |= {_digest(blob): blob for blob in (image.layer, config, manifest)}
        manifests.append(
            _descriptor(_LAYOUT.format("manifest"), manifest)
            | {"annotations": {"io.containerd.image.name": image.name}}
        )
    index = _json({"schemaVersion": 2, "manifests": manifests})
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", index)
        for digest, blob in blobs.items():
            _add(tar, "blobs/" + digest.replace(":", "/"), blob)


def layer_of(root: Path) -> bytes:
    """A directory as a layer: everything root's, with the modes that it has."""
    written = io.BytesIO()

    def roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    with tarfile.open(fileobj=written, mode="w") as tar:
        for path in sorted(root.iterdir()):
            tar.add(path, path.name, filter=roots)
    return written.getvalue()


def _layer(busybox: Path) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for directory in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", busybox.read_bytes(), mode=0o755)
        _link(tar, [f"bin/{applet}" for applet in _APPLETS])
    return written.getvalue()


def _link(tar: tarfile.TarFile, names: Sequence[str]) -> None:
    for name in names:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(entry)


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}
