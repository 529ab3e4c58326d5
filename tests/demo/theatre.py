"""The stage of the demo: its processes, its commands, and what is expected of them."""

import shlex
import time
from collections.abc import Callable
from typing import Any, Self

import yaml
from rich.console import Console
from rich.markup import escape

from backstage import Backstage
from cardwise.names import Door
from controlplane.launcher import ControlPlane

NODE = "node-a"


class Unexpected(Exception):
    """An outcome that is not as stated."""


class Theatre:
    """Cardwise and kube-scheduler over a control plane, and kubectl before the curtain."""

    def __init__(self, cp: ControlPlane, console: Console, door: Door) -> None:
        """Install Cardwise and start every process, each under its own ServiceAccount's token."""
        self._cp = cp
        self._console = console
        self._backstage = Backstage(cp, door)
        self._backstage.node(NODE, "t4x4")

    # Commands -------------------------------------------------------------------------------------

    def show(self, *args: str, stdin: str | None = None) -> str:
        """Run kubectl, showing command and answer."""
        typed = "kubectl " + " ".join(shlex.quote(arg) for arg in args)
        self._console.print(f"[bold cyan]$ {escape(typed)}")
        answer = str(self._cp.kubectl(*args, stdin=stdin)).rstrip()
        self.tell(answer)
        return answer

    def tell(self, text: str) -> None:
        """Print lines as they are."""
        if text:
            self._console.print(escape(text), style="default", markup=True)

    def create(self, name: str, *, policy: str | None = None) -> Self:
        """Create a Pod that asks for one card with 1000 MiB."""
        manifest = pod(name, policy)
        written = f"policy {policy}" if policy else "no policy"
        self._console.print(
            f"[bold cyan]$ kubectl apply -f {name}.yaml[/]   [dim]# 1 card, 1000 MiB, {written}"
        )
        self.tell(str(self._cp.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))).strip())
        return self

    def delete(self, *names: str) -> None:
        """Delete Pods and wait until they are gone."""
        self.show("delete", "pod", *names)

    def clear(self) -> None:
        """Delete every Pod."""
        self.show("delete", "pod", "--all")

    # What the API server says ---------------------------------------------------------------------

    def gpu_of(self, name: str, within: float = 20.0) -> int:
        """Wait until the Pod is bound; the index of its card."""
        path = r"{.spec.nodeName} {.metadata.annotations.hami\.io/vgpu-devices-allocated}"

        def card() -> str:
            answer = str(self._cp.kubectl("get", "pod", name, "-o", f"jsonpath={path}"))
            return answer.partition(" ")[2].partition(",")[0]

        return self._cards()[self._cp.wait(f"Pod {name} to be bound", card, within)]

    def expect(self, what: str, got: object, wanted: object) -> None:
        """Hold an outcome against what was stated."""
        if got != wanted:
            raise Unexpected(f"{what}: expected {wanted}, the API server says {got}")
        self._console.print(f"[green]✔ {escape(what)}")

    def expect_text(self, what: str, text: str, *wanted: str) -> None:
        """Every wanted text must be in what kubectl printed."""
        missing = [word for word in wanted if word not in text]
        if missing:
            raise Unexpected(f"{what}: {missing} is not in what kubectl printed:\n{text}")
        self._console.print(f"[green]✔ {escape(what)}")

    def eventually(self, what: str, ask: Callable[[], str], *wanted: str, within: float) -> str:
        """Wait until kubectl prints every wanted text; the last answer."""
        deadline = time.monotonic() + within
        while True:
            answer = ask()
            if all(word in answer for word in wanted):
                return answer
            if time.monotonic() > deadline:
                raise Unexpected(f"{what}: {wanted} is not in what kubectl printed:\n{answer}")
            time.sleep(0.1)

    def ask(self, *args: str) -> str:
        """Run kubectl without showing it."""
        return str(self._cp.kubectl(*args)).rstrip()

    def decision_log(self, name: str) -> list[str]:
        """The controller's last four score lines for a Pod: shown, not relied on."""
        lines = [
            line.partition("decisions: ")[2]
            for line in self._backstage.controller.tail(200).splitlines()
            if f"pod=default/{name} " in line and "computer score is" in line
        ]
        return lines[-4:]

    def _cards(self) -> dict[str, int]:
        """The node's cards, UUID to index; none while the agent has not reported."""
        path = "{range .status.cards[*]}{.uuid} {.index}{'\\n'}{end}"
        lines = self.ask("get", "gpunode", NODE, "-o", f"jsonpath={path}").splitlines()
        return {uuid: int(index) for uuid, index in (line.split() for line in lines)}


def pod(name: str, policy: str | None) -> dict[str, Any]:
    """A Pod that asks for one card with 1000 MiB, as a HAMi user writes it."""
    annotations = {"hami.io/gpu-scheduler-policy": policy} if policy else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "app",
                    "image": "registry.example/app:1",
                    "resources": {"limits": {"nvidia.com/gpumem": 1000}},
                }
            ],
        },
    }
