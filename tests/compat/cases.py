"""The numbers of HAMi's worked cases.

``RNN`` and so on are the numbers of the list of cases; the others name a row of a table: "request
3" is the third row of the table of requests, "check 7" the seventh check of a card.
"""


def _numbered(word: str, count: int) -> tuple[str, ...]:
    return tuple(f"{word}{number}" for number in range(1, count + 1))


CASES = (
    # The reading of requests.
    *_numbered("request ", 14),
    *_numbered("request rule ", 6),
    # The checks of a card, what is said when none passes, and the events.
    *_numbered("check ", 14),
    "check end",
    "reason text",
    "node words",
    "events",
    # Scores and policies.
    "score",
    "weights",
    "policy binpack",
    "policy spread",
    "policy mutex",
    "policy numa",
    "policy chain",
    "numa-bind groups",
    "node score",
    "link score",
    "link choice",
    # The list of cases.
    *_numbered("R", 2),
    *_numbered("W", 15),
    *_numbered("Q", 5),
    *_numbered("F", 25),
    *_numbered("S", 22),
    *_numbered("C", 24),
    *_numbered("T", 6),
    *_numbered("M", 5),
    *_numbered("L", 4),
    "H1",
    *_numbered("D", 5),
)

INVERTED = frozenset(
    {"S3", "S7", "S9", "S12", "S13", "S14", "S15", "S16", "S20", "S21"}
    | {"C10", "C11", "C13", "C16", "F1", "F17"}
    | {"policy binpack", "policy spread", "policy mutex", "policy numa", "policy chain"}
)
"""Cases where HAMi takes the highest NUMA node or the largest index, and its published rules, and
we, the lowest."""
