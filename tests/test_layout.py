"""The shape of the tree, where nothing else would notice that it is wrong."""

import ast
import operator
import tomllib
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_operator_is_a_source_root_and_not_a_package() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not Path(operator.__file__).is_relative_to(ROOT)


@pytest.mark.parametrize("package", ["operator/cardwise", "webhook/cardwise_webhook"])
def test_each_package_tells_type_checkers_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_every_package_of_the_core_is_a_regular_package() -> None:
    sources = [*ROOT.glob("operator/cardwise/**/*.py"), *ROOT.glob("webhook/*/**/*.py")]

    missing = {path.parent for path in sources if not (path.parent / "__init__.py").exists()}

    assert missing == set()


def test_every_module_that_is_no_edge_is_held_to_the_contract_of_purity() -> None:
    edges = {"agent", "callers", "cli", "controller", "kube", "options", "settings_file"}
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (pure,) = (c["source_modules"] for c in linter["contracts"] if c["id"] == "pure")

    modules = {path.stem for path in ROOT.glob("operator/cardwise/*.py")}
    packages = {path.parent.name for path in ROOT.glob("operator/cardwise/*/__init__.py")}

    core = (modules | packages) - edges - {"__init__"}
    assert {f"cardwise.{name}" for name in core} == set(pure)


def test_constraints_pin_every_dependency_and_name_no_place() -> None:
    lines = (ROOT / "constraints.txt").read_text().split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = chain(project["dependencies"], *project["optional-dependencies"].values())

    pinned = {_normal(line.partition("==")[0]) for line in lines}

    assert [line for line in lines if "/" in line or "==" not in line] == []
    assert {_normal(requirement.partition(">=")[0]) for requirement in wanted} <= pinned


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")


@pytest.mark.parametrize("package", ["engine", "ledger", "wire"])
def test_the_core_asks_nowhere_which_door_it_serves(package: str) -> None:
    # Red: `wire.pods` imports Door, or reads `settings.scheduling.bothDoors`.
    for path in (ROOT / "operator" / "cardwise" / package).rglob("*.py"):
        names = {
            getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
            for node in ast.walk(ast.parse(path.read_text()))
        }
        assert not names & {"Door", "DOOR", "door", "bothDoors", "installed_doors"}, path
