"""None of HAMi's worked cases is dropped: each is a row, and each line of the page has its rows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat.cases import CASES, INVERTED

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "hami-compatibility.md").read_text()
MOST_LINES = 12
"""Of what differs on purpose, beside what is turned round."""


def names_in(text: str) -> set[str]:
    """The cases that a sentence begins with: "W4, W5: …", or "L4."."""
    listed, _, _ = re.split(r"[:.;]", text.strip(), maxsplit=1)[0].partition("\n")
    return {name.strip() for name in listed.split(",")} & set(CASES)


def rows_of(path: Path) -> Iterator[set[str]]:
    """The cases of each row of a module, and of each test as a whole."""
    for found in ast.walk(ast.parse(path.read_text())):
        if isinstance(found, ast.Call):
            for keyword in found.keywords:
                if keyword.arg == "id" and isinstance(keyword.value, ast.Constant):
                    yield names_in(str(keyword.value.value))
        elif isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            yield names_in(ast.get_docstring(found) or "")


ROWS = {name for path in HERE.glob("test_*.py") for row in rows_of(path) for name in row}


def differing() -> list[set[str]]:
    """The cases of each line of the table of what differs on purpose."""
    table = PAGE.partition("## Differs on purpose\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [{name.strip() for name in line.split("|")[-2].split(",")} for line in lines]


@pytest.mark.parametrize("case", CASES)
def test_every_case_is_a_row(case: str) -> None:
    """Those that differ on purpose, too: their rows show what happens here instead."""
    assert case in ROWS


def test_the_page_has_few_lines_and_each_names_its_cases() -> None:
    lines = differing()

    assert 0 < len(lines) <= MOST_LINES
    assert all(line and line <= set(CASES) for line in lines)


def test_the_page_names_every_case_that_is_turned_round() -> None:
    section = PAGE.partition("## Turned round\n")[2].partition("\n## ")[0]
    listed = " ".join(section.partition("Cases:")[2].split()).rstrip(".")

    assert {name.strip() for name in listed.split(",")} == INVERTED
