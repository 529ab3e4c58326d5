"""docs/migrating-from-hami.md is followed word by word on the cluster of `make demo HAMI=1`.

Each block of commands runs in a shell as it stands on the page; what differs in the demo is what
the page marks so.
"""

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cardwise import names
from controlplane.launcher import ROOT, ControlPlane, free_port
from demo.hami_play import NODES, HamiPlay
from installation import PROGRAMS

pytestmark = pytest.mark.timeout(400)
PAGE = (ROOT / "docs/migrating-from-hami.md").read_text()
REPORT = "http://127.0.0.1:{port}/shadow"
BACK = "**Back**"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
GIVE_A_SCHEDULER = {"cardwise-webhook", "hami-webhook"}


def section(step: int) -> str:
    (found,) = re.findall(rf"^## {step}\. .*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def blocks(text: str) -> list[str]:
    """The indented blocks that are commands."""
    found = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    return [block for block in found if block.lstrip().startswith(("kubectl", "cardwise"))]


def way_on(step: int) -> list[str]:
    return blocks(section(step).partition(BACK)[0])


def way_back(step: int) -> str:
    (block,) = blocks(section(step).partition(BACK)[2])
    return block


def in_the_demo(line: str) -> str:
    """A line of the page, as the page says that it is in the demo."""
    instead = re.search(r"# demo: (.*)$", line)
    if instead is None:
        return line
    return "" if instead[1] == "not needed" else instead[1]


class Reader:
    """Whoever follows the page, in the directory of the project."""

    def __init__(self, cp: ControlPlane, directory: Path, port: int) -> None:
        for name in ("manifests", "examples", "crds"):
            (directory / name).symlink_to(ROOT / name)
        self._cp = cp
        self._directory = directory
        self._report = f"cardwise shadow-report {REPORT.format(port=port)}"

    def types(self, block: str, **words: str) -> str:
        """Run a block, and return what it printed; a word such as NODE stands for another."""
        script = "\n".join(map(in_the_demo, block.splitlines()))
        script = script.replace("cardwise shadow-report", self._report)
        for word, meant in words.items():
            script = re.sub(rf"\b{word}\b", meant, script)
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=self._directory,
            env={
                **os.environ,
                "KUBECONFIG": str(self._cp.admin_kubeconfig),
                "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return done.stdout

    def types_each(self, block: str, **words: str) -> None:
        """Run a block line by line: after each, new Pods meet a webhook, ours or HAMi's.

        Without one they would go to the cluster's own scheduler.
        """
        for line in block.splitlines():
            self.types(line, **words)
            listed = self._cp.request("GET", f"{WEBHOOKS}/mutatingwebhookconfigurations")["items"]
            assert {each["metadata"]["name"] for each in listed} & GIVE_A_SCHEDULER, line

    def tenants(self) -> dict[str, list[str]]:
        """By card that has some: its Pods."""
        listed = self._cp.request("GET", "/apis/cardwise.dev/v1alpha1/gpunodes")["items"]
        return {
            use["uuid"]: sorted(use["tenants"])
            for gpunode in listed
            for use in gpunode.get("status", {}).get("usage", ())
            if use["tenants"]
        }

    def sees(self, tenants: dict[str, list[str]]) -> None:
        self._cp.wait(f"the tenants {tenants}", lambda: self.tenants() == tenants, 30)

    def sources_become(self, by_hami: dict[str, bool]) -> None:
        """Wait until each node's GPUNode tells by its label who serves the node."""

        def told() -> bool:
            listed = self._cp.request("GET", "/apis/cardwise.dev/v1alpha1/gpunodes")["items"]
            return by_hami == {
                each["metadata"]["name"]: names.SOURCE in each["metadata"].get("labels", {})
                for each in listed
            }

        self._cp.wait(f"GPUNodes of HAMi's nodes: {by_hami}", told, 20)

    def adds(self, name: str, *, policy: str) -> None:
        """Apply the Pod of the examples under another name."""
        pod = (ROOT / "examples/cluster/pod.yaml").read_text()
        changed = pod.replace("name: hello", f"name: {name}").replace("binpack", policy)
        self._cp.kubectl("apply", "-f", "-", stdin=changed)

    def annotations(self, name: str) -> Any:
        path = f"/api/v1/namespaces/default/pods/{name}"
        return self._cp.request("GET", path)["metadata"]["annotations"]

    def card(self, name: str) -> str:
        """The UUID of the card of a Pod that has one."""
        return str(self.annotations(name)[names.ALLOCATED].partition(",")[0])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    port = free_port()
    with ControlPlane.start() as cp:
        play = HamiPlay(cp, port)
        stop = threading.Event()
        thread = threading.Thread(target=play.run, args=(stop,))
        thread.start()
        try:
            yield Reader(cp, tmp_path, port)
        finally:
            stop.set()
            thread.join()


def test_a_stranger_follows_the_page_word_by_word_on_the_cluster_of_the_demo(
    reader: Reader,
) -> None:
    theirs = {
        "GPU-node-a-a": ["default/a"],
        "GPU-node-a-d": ["default/b", "default/c"],
        "GPU-node-b-c": ["default/d"],
        "GPU-node-b-d": ["default/e"],
    }
    written = {name: reader.annotations(name)[names.ALLOCATED] for name in "abcde"}

    # 1. The report is the one on the page.
    (look,) = way_on(1)
    rows = re.findall(r"^    (POD .*|default/.*)$", section(1), re.MULTILINE)
    printed = reader.types(look).splitlines()
    assert [row.split() for row in printed[-len(rows) :]] == [row.split() for row in rows]

    # 2. There, back, and there again: whom HAMi placed counts.
    (install,) = way_on(2)
    reader.types_each(install, NODE=NODES[0])
    reader.sees(theirs)
    reader.types_each(way_back(2))
    reader.types(install, NODE=NODES[1])
    reader.sees(theirs)

    # 3. A new Pod; then namespace by namespace, and all again.
    first, narrowed = way_on(3)
    assert names.EventReason.CARDS_ALLOCATED in reader.types(first)
    reader.types(narrowed, NAMESPACE="default")
    everywhere = "    kubectl apply -k manifests/overlays/migration\n"
    assert everywhere in install
    reader.types(everywhere)
    where = reader.card("hello")
    ours = {**theirs, where: sorted([*theirs.get(where, ()), "default/hello"])}

    # 4. Node by node, and one of them back and there again.
    (move,) = way_on(4)
    for node in NODES:
        reader.types(move, NODE=node)
        reader.sees(ours)
        reader.sources_become({n: n > node for n in NODES})
    assert f"{names.SOURCE}={names.SOURCE_HAMI}" in reader.types(way_back(4), NODE=NODES[0])
    reader.sees(ours)
    reader.types(move, NODE=NODES[0])
    reader.sources_become(dict.fromkeys(NODES, False))

    # 5. Without HAMi.
    (remove,) = way_on(5)
    removed = reader.types(remove)
    assert "No resources found" in removed
    assert 'daemonset.apps "hami-device-plugin" deleted' in removed
    reader.sees(ours)
    reader.adds("last", policy="mutex")
    reader.types("kubectl wait pod last --for=condition=PodScheduled --timeout=30s")
    assert reader.card("last") not in ours
    assert {name: reader.annotations(name)[names.ALLOCATED] for name in "abcde"} == written
