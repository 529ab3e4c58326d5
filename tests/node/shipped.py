"""The images that the shipped manifests name, made without a container engine."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from controlplane.launcher import ROOT
from node import images

CARDWISE: Final = "docker.io/library/cardwise:0.1.0"
SCHEDULER: Final = "registry.k8s.io/kube-scheduler:v1.37.2"
"""By their full names, as containerd asks for what ``manifests/components/versions`` says."""
_USER: Final = "65532:65532"  # of the Dockerfile
_SOURCES: Final = ("images", "operator", "webhook", "pyproject.toml", "constraints.txt")


def why_not() -> str:
    """Why the image can't be built here; empty: it can."""
    if "bookworm" not in Path("/etc/os-release").read_text() or not shutil.which("apt-get"):
        return "the image is built of Debian 12's packages, by Debian 12's apt-get"
    return ""


def archive(scheduler: Path) -> Path:
    """Both images in one archive; kept in the cache until a source changes.

    Args:
        scheduler: kube-scheduler's program.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cardwise/image"
    made = cache / f"shipped-{_digest(scheduler)}.tar"
    if not made.exists():
        cache.mkdir(parents=True, exist_ok=True)
        for old in cache.glob("shipped-*"):
            old.unlink()
        with tempfile.TemporaryDirectory(dir=cache) as directory:
            _write(Path(directory), scheduler).rename(made)
    return made


def _write(work: Path, scheduler: Path) -> Path:
    ours, theirs = work / "cardwise", work / "kube-scheduler"
    subprocess.run(
        [ROOT / "images/build.sh", ours],
        env={**os.environ, "PYTHON": sys.executable},
        check=True,
        timeout=280,
    )
    place = theirs / "usr/local/bin"
    place.mkdir(parents=True)
    shutil.copy(scheduler, place)
    made = work / "shipped.tar"
    images.write(
        made,
        images.Image(CARDWISE, images.layer_of(ours), user=_USER),
        images.Image(SCHEDULER, images.layer_of(theirs)),
    )
    return made


def _digest(scheduler: Path) -> str:
    """Of what goes into the images; Debian's packages are taken anew by tests/e2e/test_image.py."""
    found = hashlib.sha256(str(scheduler).encode())
    for path in _files():
        found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _files() -> Iterator[Path]:
    for source in (ROOT / name for name in _SOURCES):
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and "__pycache__" not in path.parts:
                yield path
