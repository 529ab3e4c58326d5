"""What README and docs show is what happens: their commands exist, their output is printed."""

import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from cardwise.agent.main import main as agent_main
from cardwise.agent.metrics import Metrics as AgentMetrics
from cardwise.agent.probe import probe
from cardwise.agent.simulated import SimulatedNvml
from cardwise.controller.reports.metrics import Metrics
from cardwise.engine.candidates import CHECKS
from cardwise.ledger import Ledger
from cardwise.model import NodeOverrides
from cardwise.names import EventReason, NodeReason, Reason
from cardwise.settings import Agent, Settings, parse
from cardwise.wire.gpunodes_written import document_of

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
POLICIES = (ROOT / "docs" / "policies.md").read_text()
PLACEMENT = (ROOT / "docs" / "placement.md").read_text()
DOORS = (ROOT / "docs" / "doors.md").read_text()
COMPONENTS = ROOT / "manifests" / "components"
DIRECTORIES = (ROOT, ROOT / "docs")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
SOURCES = sorted(
    path
    for top in ("operator", "webhook", "tests", "manifests")
    for path in (ROOT / top).rglob("*")
    if path.suffix in (".py", ".yaml")
)


@pytest.mark.timeout(60)
def test_the_readmes_simulation_prints_what_the_readme_shows() -> None:
    (command,) = re.findall(r"^    \$ \.venv/bin/cardwise (simulate .*)$", README, re.MULTILINE)
    shown = README.partition(command)[2].partition("\n\nGPU 0 has two tenants")[0]

    program = Path(sys.executable).with_name("cardwise")
    printed = subprocess.run(
        [program, *command.split()], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    want = [line.strip() for line in shown.strip().splitlines()]
    assert [line.strip() for line in printed.strip().splitlines()] == want


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    named = set(re.findall(r"(?:`|^    )make ([a-z0-9-]+)", page.read_text(), re.MULTILINE))

    assert named - targets == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:docs|crds|manifests|tests|examples)/[\w./-]+)`", page.read_text())

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_each_decision_has_a_number_of_its_own_which_its_title_tells() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))

    titles = [record.read_text().partition(".")[0] for record in records]

    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    assert titles == [f"# {number}" for number in range(1, len(records) + 1)]


def test_every_page_that_the_sources_cite_exists() -> None:
    cited = {
        (str(path.relative_to(ROOT)), name)
        for path in SOURCES
        for name in re.findall(r"(?<![\w/.])[\w/-]+\.md\b", path.read_text())
    }

    gone = [(by, name) for by, name in cited if not any((d / name).is_file() for d in DIRECTORIES)]

    assert cited
    assert sorted(gone) == []


NUMBERS = r"\d+b?(?:(?:, | and | to )\d+b?)*\b"


def cited(word: str) -> dict[str, set[str]]:
    """The numbers behind a word in the sources' prose, and the files that name each."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        if path.parent.name == "compat":
            continue  # its checks are those of HAMi's worked cases
        prose = re.sub(r"\s+(?:# )?", " ", path.read_text())
        for numbers in re.findall(rf"\b(?i:{word})s? ({NUMBERS})", prose):
            for number in re.split(", | and | to ", numbers):
                found.setdefault(number, set()).add(str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize(
    ("word", "there"),
    [
        pytest.param("section", r"^## (\d+)\. ", id="a section"),
        pytest.param("check", r"^\| (\d+b?) \| ", id="a check of section 3"),
        pytest.param("rule", r"^(\d+)\. ", id="a rule of section 2"),
    ],
)
def test_every_part_of_the_rules_that_the_sources_cite_exists(word: str, there: str) -> None:
    exist = set(re.findall(there, PLACEMENT, re.MULTILINE))

    named = cited(word)

    assert {number: by for number, by in named.items() if number not in exist} == {}
    assert len(named.keys() & exist) > len(exist) / 2, "the citations are not found"


def test_the_rules_have_the_engines_checks_and_words_in_its_order() -> None:
    checks = re.findall(r"^\| \d+b? \| .* \| `(\w+)` \|$", PLACEMENT, re.MULTILINE)
    ranks = PLACEMENT.partition("stands later in this list:")[2].partition(". Words")[0]

    assert checks == [*(reason for reason, _ in CHECKS), Reason.TOPOLOGY, Reason.NUMA]
    assert re.findall(r"`(\w+)`", ranks) == list(Reason)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    sections = "|".join(Settings.__struct_fields__)
    named = re.findall(rf"`((?:{sections})(?:\.[A-Za-z]+)+)[`:]", page.read_text())

    gone = [name for name in named if not _is_setting(name)]

    assert gone == []


def _is_setting(name: str) -> bool:
    try:
        attrgetter(name)(Settings())
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_overlay_that_a_page_applies_or_deletes_can_be_built(page: Path) -> None:
    named = re.findall(r"kubectl (?:apply|delete) -k ([\w./-]+)", page.read_text())

    assert [name for name in named if not (ROOT / name / "kustomization.yaml").is_file()] == []


def test_the_readme_names_every_overlay_and_the_version_that_was_tested() -> None:
    install = README.partition("## Install\n")[2].partition("\n## ")[0]
    overlays = {path.name for path in (ROOT / "manifests/overlays").iterdir()}
    go_mod = (ROOT / "tests/controlplane/kubernetes/go.mod").read_text()
    (version,) = re.findall(r"k8s\.io/kubernetes v([\d.]+)$", go_mod, re.MULTILINE)

    assert {name for name in overlays if f"`{name}`" in install} == overlays - {"default"}
    assert "kubectl apply -k manifests/overlays/default" in install
    assert f"Kubernetes {version}," in install


def test_the_label_that_the_readme_gives_a_node_brings_the_agent_there() -> None:
    (key, value) = re.findall(r"kubectl label node NODE (\w+)=(\w+)", README)[0]
    agent = yaml.safe_load((ROOT / "manifests/base/agent.yaml").read_text())
    affinity = agent["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    labels = {
        (e["key"], v) for term in terms for e in term["matchExpressions"] for v in e["values"]
    }

    assert (key, value) in labels


def test_the_page_of_policies_explains_every_reason() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", POLICIES, re.MULTILINE))

    assert {reason.value for reason in Reason} <= explained


def test_the_page_of_doors_explains_every_word_about_nodes() -> None:
    rows = re.findall(r"^\| ([`\w, ]+) \|", DOORS, re.MULTILINE)
    explained = {word for row in rows for word in re.findall(r"`(\w+)`", row)}

    assert {reason.value for reason in NodeReason} <= explained


@pytest.mark.parametrize(
    "event",
    [
        EventReason.NEEDS_EXTENDER_DOOR,
        EventReason.PINNED_NODE_REFUSED,
        EventReason.SCHEDULER_ABSENT,
        EventReason.GANG_INCOMPLETE,
        EventReason.VOLUME_NOT_READY,
    ],
)
def test_the_page_of_doors_names_the_events_of_gates(event: EventReason) -> None:
    assert f"`{event}`" in DOORS


def test_the_settings_of_the_doors_that_the_page_shows_are_those_of_the_overlays() -> None:
    shown = set(re.findall(r"`(scheduling: \{[^`]*\})`", DOORS))
    shipped = {
        line
        for name in ("only-gates", "both-doors")
        for line in (COMPONENTS / f"settings-{name}" / "cardwise.yaml").read_text().splitlines()
        if line.startswith("scheduling:")
    }

    assert len(shipped) == 2
    assert shipped <= shown
    for text in shown:
        assert parse(text)


def test_the_page_of_doors_shows_the_guards_sentence() -> None:
    guard = " ".join((COMPONENTS / "gates" / "guard.yaml").read_text().split())
    shown = DOORS.partition("Anybody else is told\n\n")[2].partition("\n\n")[0]

    assert " ".join(shown.split()) in guard


def test_the_page_of_operations_names_every_metric_of_ours_and_no_other() -> None:
    agent = AgentMetrics("node-a", report=lambda: None, failures=lambda: 0)
    told = (Metrics(Ledger()).render() + agent.render()).decode()
    ours = {name.removesuffix("_created") for name in re.findall(r"# HELP (cardwise_\w+)", told)}

    assert ours == set(re.findall(r"^\| `(cardwise_\w+)", OPERATIONS, re.MULTILINE))


@pytest.mark.parametrize("event", EventReason)
def test_every_event_is_explained_on_some_page(event: EventReason) -> None:
    assert any(f"`{event}`" in page.read_text() for page in PAGES)


CHECK = OPERATIONS.partition("## Check a real GPU node")[2].partition("\n## ")[0]


def test_every_line_that_the_check_of_a_node_compares_is_printed() -> None:
    table = CHECK.partition("| line of")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    compared = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    document = document_of(
        probe(
            "node-a", SimulatedNvml("v100x8", node="node-a").load(), Agent(), NodeOverrides()
        ).node,
        driver_version="1",
    )

    printed = {"driverVersion", "links", *document["status"]["cards"][0]}
    printed |= set(document["status"]["links"][0])

    assert compared == printed - {"cores", "slots", "between"}


def test_the_check_of_a_node_finds_the_agent_and_its_settings() -> None:
    agent = yaml.safe_load((ROOT / "manifests/base/agent.yaml").read_text())
    (label,) = re.findall(r"get pods -o wide -l (\S+)=(\S+)", CHECK)
    (command,) = re.findall(r"exec POD -- (cardwise-agent .*)$", CHECK, re.MULTILINE)
    (container,) = agent["spec"]["template"]["spec"]["containers"]

    program, *words = command.split()

    assert label in agent["spec"]["template"]["metadata"]["labels"].items()
    assert [program] == container["command"]
    assert f"--config={words[words.index('--config') + 1]}" in container["args"]
    agent_main.make_context("cardwise-agent", words)  # it knows every option


def test_the_pod_that_checks_a_node_asks_for_what_the_page_says() -> None:
    (file,) = set(re.findall(r"kubectl create -f (\S+)", CHECK))
    pod = yaml.safe_load((ROOT / file).read_text())
    (container,) = pod["spec"]["containers"]

    (limit,) = re.findall(r"`CUDA_DEVICE_MEMORY_LIMIT_0` is `(\d+)m`", CHECK)

    assert set(re.findall(r"cardwise-check", CHECK)) == {pod["metadata"]["name"]}
    assert container["command"] == ["env"]
    assert container["resources"]["limits"]["nvidia.com/gpumem"] == int(limit)


def test_the_settings_that_page_and_manifests_show_are_the_defaults_of_every_section() -> None:
    shown = OPERATIONS.partition("## Settings")[2].partition("    scheduling:")
    page = shown[1] + shown[2].partition("\n\n")[0]
    shipped = (ROOT / "manifests" / "base" / "cardwise.yaml").read_text()

    for text in (page, shipped):
        assert parse(text) == parse("")
        assert set(yaml.safe_load(text)) == set(Settings.__struct_fields__)
