"""What the bench makes of the records it reads. What it measures, no test asserts."""

import io
import json
import math
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from bench import compare
from bench.audit import AuditTail
from bench.cluster_bench import _conclude, _options, _plan
from bench.contestants import contestants, throttled
from bench.measures import Histogram, events, histogram, lives, quantile, requests, total
from bench.mixes import MIXES, REFUSED, pod
from bench.report import BASE, Run, table
from bench.shares import shares
from bench.svg import Chart, drawn
from bench.trial import Result
from cardwise import names
from cardwise.settings import Settings
from cardwise.wire.pods import request_of

Json = dict[str, Any]


def line(
    verb: str, name: str, at: float, *, sub: str | None = None, code: int = 201, space: str = "mine"
) -> bytes:
    """A line of the audit log; a request takes a tenth of a second."""
    about = {"resource": "pods", "namespace": space, "name": name, "subresource": sub}
    event = {
        "verb": verb,
        "objectRef": {key: value for key, value in about.items() if value},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-11-30T00:00:{at:09.6f}Z",
        "stageTimestamp": f"2026-11-30T00:00:{at + 0.1:09.6f}Z",
    }
    return json.dumps(event, separators=(",", ":")).encode()


CREATED = [line("create", "a", 1.0), line("create", "b", 1.5)]


@pytest.mark.parametrize(
    ("more", "bound", "turned_away"),
    [
        pytest.param([line("create", "a", 2.0, sub="binding")], {"a"}, 0, id="a Binding"),
        pytest.param([line("create", "a", 2.0, sub="binding", code=409)], set(), 0, id="refused"),
        pytest.param(
            [line("create", "a", 2.0, sub="binding", space="other")], set(), 0, id="another's"
        ),
        pytest.param([line("create", "a", 2.0, sub="eviction")], set(), 0, id="no Binding"),
        pytest.param([line("patch", "a", 2.0, sub="binding")], set(), 0, id="no creation"),
        pytest.param(
            [line("list", "", 2.0, code=429, space="other")], set(), 1, id="anybody turned away"
        ),
    ],
)
def test_what_is_read_of_the_audit_log(
    more: list[bytes], bound: set[str], turned_away: int
) -> None:
    found = lives([*CREATED, *more], "mine")

    assert set(found.created) == {"a", "b"}
    assert set(found.bound) == bound
    assert found.turned_away == turned_away


LOST = line("create", "a", 2.0, sub="binding", code=504)
MADE = line("create", "a", 3.0, sub="binding")
TWICE = line("create", "a", 4.0, sub="binding", code=409)


@pytest.mark.parametrize(
    ("answers", "placed", "waits", "doubtful"),
    [
        pytest.param([LOST], ["a"], [1.1], set(), id="it was made all the same"),
        pytest.param([LOST], [], [], {"a"}, id="it was not made"),
        pytest.param([LOST, MADE], ["a"], [2.1], set(), id="the next was made: that one counts"),
        pytest.param([MADE, LOST], ["a"], [2.1], set(), id="a late answer to another"),
        pytest.param([LOST, TWICE], ["a"], [1.1], set(), id="it was, as the next was told"),
        pytest.param([LOST, LOST], ["a", "a"], [1.1], set(), id="nobody is bound twice"),
        pytest.param([TWICE], ["a"], [], set(), id="what was refused leaves no doubt"),
        pytest.param(
            [line("create", "a", 2.0, sub="binding", code=0)], ["a"], [1.1], set(), id="no answer"
        ),
    ],
)
def test_a_binding_that_was_made_counts_once_whatever_was_answered(
    answers: list[bytes], placed: list[str], waits: list[float], doubtful: set[str]
) -> None:
    # Red: a Pod is bound by 201 alone; or each Binding counts, not each Pod.
    found = lives([*CREATED, *answers], "mine")
    found.confirm(placed)

    assert found.waits == pytest.approx(waits)
    assert set(found.doubtful) == doubtful


def test_the_log_is_read_in_parts_as_at_once() -> None:
    parts = lives([MADE], "mine", lives([*CREATED, LOST], "mine"))

    assert parts == lives([*CREATED, LOST, MADE], "mine")


def test_the_log_is_read_from_where_it_was_and_its_loss_is_told(tmp_path: Path) -> None:
    # Red: `_read` takes what a new file has from there on: nothing, for ever.
    log = tmp_path / "audit.log"
    log.write_bytes(CREATED[0] + b"\n")
    tail = AuditTail(SimpleNamespace(directory=tmp_path))
    news = tail.news()

    with log.open("ab") as more:
        more.write(MADE + b"\n" + LOST[:9])
    assert news() == [MADE + b"\n"]
    log.write_bytes(LOST[9:] + b"\n")
    with pytest.raises(RuntimeError, match="begun anew"):
        news()


def test_events_are_counted_by_the_namespace_of_their_objects() -> None:
    def event(space: str) -> bytes:
        about = {"resource": "events", "namespace": space}
        return json.dumps({"verb": "create", "objectRef": about}, separators=(",", ":")).encode()

    assert events([event("mine"), event("mine"), event("other"), MADE], "mine") == 2


def test_times_run_from_the_asking_for_a_pod_to_the_answer_to_its_binding() -> None:
    bindings = [line("create", "b", 2.0, sub="binding"), line("create", "a", 3.9, sub="binding")]
    found = lives([*CREATED, *bindings], "mine")

    assert sorted(found.waits) == pytest.approx([0.6, 3.0])
    assert found.seconds == pytest.approx(3.0)
    assert found.rate == pytest.approx(2 / 3.0)
    assert found.created_rate == pytest.approx(4.0)


def test_of_a_trial_in_which_nobody_was_bound_no_rate_is_made_up() -> None:
    found = lives(CREATED, "mine")

    assert math.isnan(found.rate)
    assert math.isnan(quantile(found.waits, 0.5))


@pytest.mark.parametrize(
    ("part", "want"), [(0.5, 5), (0.99, 10), (1.0, 10), (0.01, 1)], ids=["p50", "p99", "all", "1"]
)
def test_a_quantile_is_a_value_that_was_seen(part: float, want: float) -> None:
    assert quantile([*range(10, 0, -1)], part) == want


TEXT = """\
# TYPE seconds histogram
seconds_bucket{verb="filter",result="ok",le="0.001"} 10
seconds_bucket{verb="filter",result="ok",le="0.002"} 30
seconds_bucket{verb="filter",result="ok",le="+Inf"} 31
seconds_bucket{verb="filter",result="error",le="0.001"} 0
seconds_bucket{verb="filter",result="error",le="0.002"} 0
seconds_bucket{verb="filter",result="error",le="+Inf"} 9
seconds_bucket{verb="bind",result="ok",le="+Inf"} 7
seconds_sum{verb="filter",result="ok"} 1
others_bucket{verb="filter",le="+Inf"} 70
"""


def test_a_histogram_is_summed_over_the_labels_that_are_not_named() -> None:
    found = histogram(TEXT, "seconds", verb="filter")

    assert found.counts == {0.001: 10, 0.002: 30, math.inf: 40}
    assert found.longer_than(0.002) == 10


def test_quantiles_of_a_histogram_lie_within_their_bucket() -> None:
    found = histogram(TEXT, "seconds", verb="filter")

    assert found.quantile(0.5) == pytest.approx(0.0015)  # the tenth of the twenty there
    assert found.quantile(0.99) == 0.002  # at least: nobody knows how long it took
    assert math.isnan(Histogram().quantile(0.5))
    assert found.since(found).count == 0


def test_whoever_waits_for_its_own_limit_is_throttled() -> None:
    limiter = Histogram({0.005: 80, 0.025: 98, math.inf: 100})

    assert throttled(limiter) == pytest.approx(0.02)
    assert math.isnan(throttled(Histogram()))


# Pods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("contestant", contestants(None))
def test_all_contestants_get_the_same_pods_but_for_who_binds_them(
    mix: str, contestant: str
) -> None:
    who = contestants(None)[contestant]
    for number in range(60):
        made = pod(MIXES[mix], number, scheduler=who.scheduler, gated=who.gated)
        other = pod(MIXES[mix], number, scheduler="other", gated=False)

        assert (made["spec"].pop("schedulingGates", None) is not None) == (contestant == "gates")
        assert made["spec"].pop("schedulerName") != other["spec"].pop("schedulerName")
        assert made == other
        assert (REFUSED in made["metadata"]["labels"]) != MIXES[mix].fits(number)


def test_the_mixes_are_what_they_are_called() -> None:
    def requests(mix: str) -> list[Any]:
        made = [
            pod(MIXES[mix], number, scheduler=names.SCHEDULER_NAME, gated=False)
            for number in range(1000)
        ]
        for each in made:
            each["metadata"] |= {"namespace": "n", "uid": each["metadata"]["name"]}
        return [getattr(request_of(each, Settings()), "signature", None) for each in made]

    kinds = {mix: len(set(requests(mix))) for mix in MIXES}

    assert kinds == {"alike": 1, "fifty": 50, "mesh": 1, "half": 2}
    assert sum(map(MIXES["half"].fits, range(1000))) == 500


# Reports ------------------------------------------------------------------------------------------


def result(contestant: str, number: int, rate: float, **more: Any) -> Result:
    given = {"nodes": 100, "mix": "alike", "pods": 10, "expected": 10, "bound": 10, **more}
    return Result(contestant=contestant, round=number, rate=rate, **given)


def run(*results: Result) -> Run:
    titles = {name: each.title for name, each in contestants(None).items()}
    return Run(titles=titles, limits={}, results=list(results))


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    rounds = zip(range(1, 4), (100, 200, 50), (50, 20, 40), strict=True)
    made = run(
        *(
            each
            for n, base, mine in rounds
            for each in (result(BASE, n, base), result("gates", n, mine))
        )
    )

    assert made.ratio("gates", 100, "alike") == 0.5  # of 0.5, 0.1 and 0.8
    assert math.isnan(made.ratio("extender", 100, "alike"))


@pytest.mark.parametrize(
    ("odd", "void"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"throttled": 0.009}, False, id="a request now and then"),
        pytest.param({"throttled": 0.02}, True, id="its own limit"),
        pytest.param({"turned_away": 1}, True, id="the API server's"),
    ],
)
def test_a_run_in_which_the_base_met_a_limit_is_void(odd: Json, void: bool) -> None:
    others = result("gates", 1, 1, throttled=0.5)

    assert run(result(BASE, 1, 1, **odd), others).is_void is void
    assert len(run(result(BASE, 1, 1, **odd), others).void()) == 1 + void


@pytest.mark.parametrize(
    ("throttled", "said"),
    [
        pytest.param(0.009, False, id="a request now and then"),
        pytest.param(0.02, True, id="its own limit"),
    ],
)
def test_a_void_run_says_so_on_the_screen_and_in_its_record(
    throttled: float, said: bool, tmp_path: Path
) -> None:
    # Red: `_conclude` says nothing of it, or `document` leaves it out.
    console = Console(width=200, record=True, file=io.StringIO())
    made = on({}, result(BASE, 1, 7.0, throttled=throttled))

    _conclude(console, made, tmp_path)
    console.print(table(made, 100, "alike"))

    text = console.export_text()
    assert ("VOID: (a') was throttled" in text) is said
    assert ("2% of kube-scheduler's requests" in text) is said
    assert ("THROTTLED" in text) is said
    assert json.loads((tmp_path / "cluster.json").read_text())["is_void"] is said


def test_a_document_of_a_run_is_json_and_has_no_numbers_that_are_none() -> None:
    made = run(
        result(BASE, 1, math.nan), result("gates", 1, 2.0, latency_ms={"pin": (1.0, math.nan)})
    )

    read = json.loads(json.dumps(made.document(), allow_nan=False))

    assert [each["rate"] for each in read["medians"]] == [None, 2.0]
    assert read["trials"][1]["latency_ms"] == {"pin": [1.0, None]}
    assert table(made, 100, "alike").row_count == 2


def test_a_trial_is_read_as_it_was_written() -> None:
    made = result("gates", 2, 2.0, latency_ms={"pin": (1.0, math.nan)}, peak_mb={"etcd": 9.0})

    read = Result.read(json.loads(json.dumps(made.document())))

    assert read.document() == made.document()
    assert math.isnan(read.p50_seconds)
    assert read.latency_ms["pin"][0] == 1.0


def on(machine: Json, *results: Result, **limits: Any) -> Run:
    made = run(*results)
    made.machine = {"processor": "p", "cores": 2, "versions": {"kopf": "1"}, "is_busy": False}
    made.machine |= machine
    made.limits = {"rounds": 1, "pods": 10, **limits}
    return made


def test_a_run_goes_on_with_what_is_there() -> None:
    # Red: `add_to` that leaves the machine's `is_busy` as it is; or `rounds` that count from 0.
    earlier = on({"is_busy": True}, result(BASE, 1, 1.0), result(BASE, 2, 1.0), rounds=2)
    later = on({})
    later.add_to(earlier.document())

    assert later.rounds(100, "alike") == 2
    assert later.rounds(1000, "alike") == 0
    assert later.machine["is_busy"]


@pytest.mark.parametrize(
    ("machine", "limits"),
    [
        pytest.param({"versions": {"kopf": "2"}}, {}, id="of another version"),
        pytest.param({"cores": 64}, {}, id="on another machine"),
        pytest.param({}, {"pods": 1000}, id="with another number of Pods"),
    ],
)
def test_no_run_goes_on_with_what_can_not_be_compared(machine: Json, limits: Json) -> None:
    with pytest.raises(ValueError, match="it "):
        on(machine, **limits).add_to(on({}).document())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--url", "http://h:1"], "one number of --nodes", id="three clusters"),
        pytest.param(["--url", "h:1", "--nodes", "9"], "http://", id="no address"),
        pytest.param(["--url", "http://h:1", "--nodes", "9"], "", id="one cluster"),
        pytest.param(["--only", "url", "--nodes", "9"], "--only url: there are", id="which url"),
    ],
)
def test_an_extender_is_asked_about_the_one_cluster_that_it_knows(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Red: `_options` takes any; at the second number of nodes the first extender would answer.
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])

    if said:
        with pytest.raises(SystemExit):
            _options()
        assert said in capsys.readouterr().err
    else:
        assert _plan(_options()) == [(9, "alike")]


# Where the time goes ------------------------------------------------------------------------------

OUTER = "main (cardwise/controller/main.py:106)"
WORKER = f"{OUTER};worker (kopf/_core/reactor/queueing.py:338)"


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        pytest.param(
            f"{WORKER};handle (cardwise/controller/watching/handlers.py:90);"
            "Mirror.see_pod (cardwise/controller/watching/mirror.py:126);"
            "Bypassed.see_pod (cardwise/controller/followers/bypassed.py:60)",
            "followers of the mirror",
            id="the innermost that has a name, though Kopf called it",
        ),
        pytest.param(WORKER, "Kopf: an event to its handler", id="Kopf's own"),
        pytest.param(OUTER, "HTTP, TLS and loop", id="whatever else"),
    ],
)
def test_a_stack_is_of_one_part(stack: str, part: str) -> None:
    assert shares([f"{stack} 3", f"{stack} 4"]) == {part: 7}


def test_a_chart_is_well_formed_and_has_its_bars() -> None:
    plain = Chart("a < b", "Pods/s", ["100", "1,000"], {"x": [1.0, None], "y & z": [250.0, 3.0]})
    stacks = Chart("t", "ms", ["g"], {"x": [{"a": 1.0, "b": 2.0}]}, parts=["a", "b"])

    for chart, bars in ((plain, 3), (stacks, 2)):
        read = ET.fromstring(drawn(chart))  # noqa: S314 - it is ours
        inner = [each for each in read.iter() if each.tag.endswith("rect") and "x" in each.attrib]
        legend = len(chart.parts or chart.bars)
        assert len(inner) == bars + legend
        assert all(float(each.attrib["height"]) >= 0 for each in inner)


# Two results --------------------------------------------------------------------------------------


def test_results_are_compared_by_what_both_have() -> None:
    before, after = {"a": 2.0, "b": 1.0, "c": 9.0}, {"a": 1.0, "b": 2.0, "d": 9.0}
    console = Console(width=100, record=True, file=io.StringIO())

    assert compare.ratios(before, after) == {"a": 0.5, "b": 2.0}
    console.print(compare.table("µs", before, after))
    assert re.search(r"geometric mean\W+1\.00", console.export_text())


def test_a_figure_is_told_with_what_it_is_a_figure_of() -> None:
    # Red: `table` takes the brackets of a name for a colour.
    found = {"m.py::test_decide[5000]": 2.0}

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(compare.table("µs", found, found))
    assert "test_decide[5000]" in console.export_text()


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(
            {"benchmarks": [{"fullname": "tests/bench/m.py::t[1]", "stats": {"min": 2e-6}}]},
            ("µs", {"m.py::t[1]": pytest.approx(2.0)}),
            id="a micro-benchmark's",
        ),
        pytest.param(
            run(result(BASE, 1, 7.0), result("gates", 1, math.nan)).document(),
            ("Pods/s", {"stock-all, 100 nodes, alike": 7.0}),
            id="a cluster's",
        ),
    ],
)
def test_both_kinds_of_results_are_read(document: Json, want: tuple[str, Json]) -> None:
    assert compare.figures(document) == want


def test_what_is_no_result_is_told() -> None:
    with pytest.raises(ValueError, match="neither"):
        compare.figures({})


def test_requests_are_counted_of_one_namespace_where_that_is_asked() -> None:
    def line(namespace: str, verb: str) -> bytes:
        event = {
            "verb": verb,
            "user": {"username": "system:serviceaccount:cardwise-system:cardwise-controller"},
            "userAgent": "cardwise-controller/1",
            "objectRef": {"resource": "events", "namespace": namespace},
        }
        return json.dumps(event).encode()

    lines = [line("wait", "create"), line("wait", "patch"), line("fit", "create")]
    who = "cardwise-controller (cardwise-controller)"

    assert requests(lines) == {f"{who} create events": 2, f"{who} patch events": 1}
    assert requests(lines, "wait") == {f"{who} create events": 1, f"{who} patch events": 1}


def test_a_gauge_is_summed_up_over_its_labels_and_not_with_its_namesakes() -> None:
    text = 'pods{reason="a"} 2\npods{reason="b"} 3\npods_gone 4\n'

    assert total(text, "pods") == 5
    assert total(text, "pods", reason="b") == 3
    assert total(text, "pods", reason="c") == 0
