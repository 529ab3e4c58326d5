"""A reverse proxy to an API server that makes it as unkind as a bad day: late, cut off, lost.

A controller learns by its watches what happened, some time after it did, and writes without always
hearing what came of it. Behind this proxy a seed decides which requests go wrong and how, so that a
test sees what comes of it; or a test says it of the next request, and may hold that one for as long
as it likes. It does nothing until it is told to.

This is the test's side of it, which starts it; ``fault_server`` is the process.
"""

import json
import sys
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Self

import yaml

from controlplane.launcher import ControlPlane, Process, free_port

SERVER: Final = Path(__file__).with_name("fault_server.py")

DROP: Final = "drop"
"""The connection is closed, and nothing was passed on."""
BUSY: Final = "busy"
"""429, and nothing was passed on."""
BROKEN: Final = "broken"
"""500, and nothing was passed on."""
DELAY: Final = "delay"
"""Passed on seconds later, whether or not the caller still waits."""
HALF: Final = "half"
"""Passed on; half of the answer, then the connection is closed."""
LOST: Final = "lost"
"""Passed on; nothing of the answer, the connection is closed."""
CUT: Final = "cut"
"""A watch ends in the middle of a line."""
GONE: Final = "gone"
"""A watch ends by saying 410: whoever watches must list anew."""
ILL: Final = "ill"
"""A watch ends by saying 500."""
HOLD: Final = "hold"
"""Not passed on until it is released; then passed on, or dropped."""
KEEP: Final = "keep"
"""Passed on; the answer is not delivered until it is released."""
FROZEN: Final = "frozen"
"""Not passed on and never answered, and the connection stays open."""

OF_REQUESTS: Final = (DROP, BUSY, BROKEN, DELAY, HALF, LOST, FROZEN)
OF_WATCHES: Final = (DROP, BUSY, BROKEN, CUT, GONE, ILL, FROZEN)
TOLD: Final = "/-/"
"""Where the proxy itself is spoken to."""


@dataclass(frozen=True)
class Plan:
    """What goes wrong, and how often."""

    seed: int = 0
    requests: Mapping[str, float] = field(default_factory=dict)
    """The share of requests that meet each of ``OF_REQUESTS``."""
    watches: Mapping[str, float] = field(default_factory=dict)
    """The share of watches that meet each of ``OF_WATCHES``."""
    late: Mapping[str, float] = field(default_factory=dict)
    """By path: seconds by which every piece of a watch is late, in its order."""

    def fault(self, number: int, *, watch: bool) -> tuple[str, float]:
        """What becomes of a request, and a number from 0 to 1 that says when."""
        random = Random(f"{self.seed}/{number}")
        drawn, when = random.random(), random.random()
        for kind, share in (self.watches if watch else self.requests).items():
            if drawn < share:
                return kind, when
            drawn -= share
        return "", when


class FaultProxy:
    """A proxy before the API server of a control plane, or before another server, as a process."""

    def __init__(
        self,
        cp: ControlPlane,
        plan: Plan | None = None,
        *,
        server: str | None = None,
        name: str = "fault-proxy",
        kinds: int = 4,
    ) -> None:
        """Start it, and wait until it answers.

        Args:
            cp: the control plane.
            plan: what goes wrong from the beginning.
            server: who else is behind it: its address.
            name: of the process.
            kinds: how many kinds the controller behind it watches.
        """
        self.cp = cp
        self.kinds = kinds
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process: Process = cp.start_process(
            name,
            [
                sys.executable,
                SERVER,
                f"--server={server or cp.server}",
                f"--ca={cp.ca}",
                f"--port={self.url.rpartition(':')[2]}",
            ],
            env={"PYTHONPATH": str(SERVER.parent)},
        )
        cp.wait("the proxy to answer", self._answers, 30)
        if plan is not None:
            self.plan(plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()

    def through(self, kubeconfig: Path) -> Path:
        """Write a kubeconfig of the same user that goes by this proxy."""
        config = yaml.safe_load(kubeconfig.read_text())
        for cluster in config["clusters"]:
            cluster["cluster"] = {"server": self.url}
        changed = kubeconfig.with_suffix(".proxied")
        changed.touch(mode=0o600)
        changed.write_text(yaml.safe_dump(config))
        return changed

    def plan(self, plan: Plan) -> None:
        """From now on this goes wrong."""
        self._tell("plan", asdict(plan))

    def next(self, ends: str, fault: str, *, method: str = "") -> None:
        """Let the next request for a path that ends so, by this or any method, meet this fault."""
        self._tell("next", {"ends": ends, "fault": fault, "method": method})

    def silence(self, ends: str = "") -> None:
        """Let the watches of paths that end so say nothing from now on, and stay open.

        Those are meant that are under way once all kinds are watched.
        """
        self.cp.wait("the watches to begin", lambda: self.watches() == self.kinds, 20)
        self._tell("silence", {"ends": ends})

    def release(self, *, on: bool) -> None:
        """Let the held request go on its way, or its answer; or drop it."""
        self._tell("release", {"on": on})

    def held(self) -> float | None:
        """Seconds since something is held; None where nothing is."""
        held = self._tell("state")["held"]
        return None if held is None else float(held["age"])

    def met(self) -> Counter[str]:
        """How often each fault was met."""
        return Counter(self._tell("state")["met"])

    def watches(self) -> int:
        """How many watches are under way, and not at their end."""
        return int(self._tell("state")["watches"])

    def requests(self) -> int:
        """How many requests there were."""
        return int(self._tell("state")["requests"])

    def _answers(self) -> bool:
        try:
            self._tell("state")
        except OSError:
            return False
        return True

    def _tell(self, what: str, body: Any = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - its own address
            self.url + TOLD + what, json.dumps(body).encode(), method="PUT"
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)
