"""Every field report is a test, or a line with a reason in docs/field-reports.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "field-reports.md").read_text()
REPORTS = {
    f"R{number}"
    for number in re.findall(
        r"\d\d",
        """
        01 02 05 06 07 08 09 10 12 14 15
        17 18 20 21 23
        24 26 28 30
        31 32 33 34 35 37 38 39 41
        42 43 45 47 49 50 51 52 55
        56 57 58 60 62 63 64 65 66 67
        69 70 71 72 74
        75 76 77 78 79 81
        82 83 84 86 87 88 89 90 92
        """,
    )
}
_OUT_OF_SCOPE = 12
"""Lines at most: what is left out is the exception."""


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def report_tests() -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for path in sorted((TESTS / "reports").glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
                "test_"
            ):
                yield node


def numbers_tested() -> set[str]:
    """The numbers that the name of a test begins with, or the id of a row."""
    found = set()
    for directory in ("reports", "e2e", "e2e_node"):
        for path in (TESTS / directory).glob("test_*.py"):
            text = path.read_text()
            found |= set(re.findall(r"^(?:async )?def test_(r\d\d)_", text, re.MULTILINE))
            found |= {it.lower() for it in re.findall(r"\bid=f?\"(R\d\d) ", text)}
    return {number.upper() for number in found}


def test_every_report_is_tested_or_left_out_with_a_reason() -> None:
    left_out = re.findall(r"^\| (R\d\d) \| \S.*\|$", section("Out of scope"), re.MULTILINE)
    to_come = re.findall(r"\bR\d\d\b", section("To come"))

    assert REPORTS - numbers_tested() - set(left_out) - set(to_come) == set()
    assert len(left_out) <= _OUT_OF_SCOPE
    assert set(left_out) & numbers_tested() == set(), "it is in scope after all"
    assert numbers_tested() | set(left_out) | set(to_come) <= REPORTS, "no such report"


def test_every_test_of_a_report_says_what_makes_it_red() -> None:
    silent = [
        test.name
        for test in report_tests()
        if re.match(r"test_r\d\d_", test.name) and "Red: " not in (ast.get_docstring(test) or "")
    ]

    assert silent == []
