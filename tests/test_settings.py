import pytest

from cardwise.errors import BadSettings
from cardwise.ledger import STALE_SECONDS
from cardwise.names import NodePolicy, TopologyMode
from cardwise.quantity import LARGEST
from cardwise.settings import LONGEST_REPORT_SECONDS, Settings, parse


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("# a comment alone\n", id="a comment"),
        pytest.param("{}", id="an empty object"),
        pytest.param("scheduling: {}\nagent: {}", id="empty sections"),
    ],
)
def test_what_is_left_out_is_a_default(text: str) -> None:
    assert parse(text) == Settings()


def test_the_defaults_are_those_of_the_contract() -> None:
    assert parse("") == parse(
        """
        scheduling: {door: extender, cardPolicy: spread, nodePolicy: binpack,
                     topologyAware: {enabled: true, mode: required}, initShrink: false}
        events: {nameTenants: true}
        defaults: {memoryMiB: 0, cores: 0, gpuCount: 1}
        admission: {runtimeClassName: "", coreUtilizationPolicy: "", hideCardsFromOthers: false}
        agent: {slotsPerCard: 10, memoryScaling: 1.0, coreScaling: 1.0, reportSeconds: 60,
                ignoredXids: [13, 31, 43, 45, 68, 109], cdi: auto}
        """
    )


def test_every_key_is_read() -> None:
    settings = parse(
        """
        scheduling: {cardPolicy: "mutex,binpack", nodePolicy: spread,
                     topologyAware: {enabled: false, mode: preferred}, initShrink: true}
        events: {nameTenants: false}
        defaults: {memoryMiB: 2000, cores: 10, gpuCount: 2}
        admission: {runtimeClassName: nvidia, coreUtilizationPolicy: force,
                    hideCardsFromOthers: true}
        agent: {slotsPerCard: 4, memoryScaling: 1.5, coreScaling: 2, reportSeconds: 30,
                ignoredXids: [13]}
        """
    )

    scheduling, defaults, agent = settings.scheduling, settings.defaults, settings.agent
    assert (scheduling.cardPolicy, scheduling.nodePolicy) == ("mutex,binpack", NodePolicy.SPREAD)
    assert not scheduling.topologyAware.enabled
    assert scheduling.topologyAware.mode is TopologyMode.PREFERRED
    assert scheduling.initShrink
    assert not settings.events.nameTenants
    assert (defaults.memoryMiB, defaults.cores, defaults.gpuCount) == (2000, 10, 2)
    assert settings.admission.runtimeClassName == "nvidia"
    assert settings.admission.coreUtilizationPolicy == "force"
    assert settings.admission.hideCardsFromOthers
    assert (agent.slotsPerCard, agent.reportSeconds, agent.ignoredXids) == (4, 30, (13,))
    assert (agent.memoryScaling, agent.coreScaling) == (1.5, 2.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("auto", None, id="auto"),
        pytest.param("on", True, id="on"),
        pytest.param("off", False, id="off"),
        pytest.param('"on"', True, id="quoted on"),
        pytest.param("'off'", False, id="quoted off"),
        pytest.param("true", True, id="true"),
    ],
)
def test_on_and_off_may_be_quoted_or_not(text: str, said: bool | None) -> None:
    assert parse(f"agent: {{cdi: {text}}}").agent.said_cdi is said


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("shceduling: {}", "shceduling", id="a misspelt section"),
        pytest.param("scheduling: {cardpolicy: x}", "cardpolicy", id="a key in the wrong case"),
        pytest.param("defaults: {memoryMiB: 1Gi}", "defaults.memoryMiB", id="text for a number"),
        pytest.param("defaults: {memoryMiB: 1.5}", "defaults.memoryMiB", id="a fraction"),
        pytest.param("defaults: {memoryMiB: true}", "defaults.memoryMiB", id="truth for a number"),
        pytest.param("events: {nameTenants: 1}", "events.nameTenants", id="a number for truth"),
        pytest.param(
            "scheduling: {nodePolicy: pack}", "scheduling.nodePolicy", id="no node policy"
        ),
        pytest.param(
            "scheduling: {topologyAware: {mode: must}}", "topologyAware.mode", id="no such mode"
        ),
        pytest.param("scheduling: {topologyAware: true}", "topologyAware", id="no object"),
        pytest.param("scheduling: null", "scheduling", id="a null section"),
        pytest.param("scheduling: {cardPolicy: 2026-01-01}", "cardPolicy", id="a date for text"),
        pytest.param(
            'scheduling: {cardPolicy: "mutex, binpak"}', "'binpak'", id="an unknown default policy"
        ),
        pytest.param("scheduling: {door: window}", "scheduling.door", id="no such door"),
        pytest.param("gates: {refusedSeconds: 0}", "gates.refusedSeconds", id="no patience"),
        pytest.param("- a\n- b", "Expected `object`", id="a list"),
        pytest.param("{1: 2}", "Expected `str`", id="a number for a key"),
        pytest.param("a: [", "are not YAML", id="a bracket left open"),
        pytest.param("a: 2026-13-45", "are not YAML", id="a date of month 13"),
        pytest.param("a: \x00", "are not YAML", id="a control character"),
        pytest.param("defaults: {memoryMiB: -1}", "defaults.memoryMiB", id="negative memory"),
        pytest.param("defaults: {cores: -1}", "defaults.cores", id="negative cores"),
        pytest.param("defaults: {gpuCount: -1}", "defaults.gpuCount", id="a negative count"),
        pytest.param(
            f"defaults: {{gpuCount: {LARGEST + 1}}}", "defaults.gpuCount", id="too many cards"
        ),
        pytest.param("agent: {slotsPerCard: 0}", "agent.slotsPerCard", id="no slots"),
        pytest.param("agent: {reportSeconds: 0}", "agent.reportSeconds", id="no pause"),
        pytest.param("agent: {reportSeconds: 91}", "from 1 to 90", id="a node silent by settings"),
        pytest.param("agent: {}\nagent: {cdi: on}", "the key agent is there twice", id="twins"),
        pytest.param("agent: {cdi: on, cdi: off}", "the key cdi is there twice", id="twin keys"),
        pytest.param("agent: {cdi: 'On'}", "one of auto, off, on", id="a word in capitals"),
        pytest.param("agent: {cdi: null}", "one of auto, off, on", id="a word left out"),
        pytest.param("scheduling: {door: gate}", "one of extender, gates", id="half a door"),
        pytest.param(
            "scheduling: {nodePolicy: numa}",
            "one of binpack, spread",
            id="a cards' policy for nodes",
        ),
        pytest.param(
            "scheduling: {topologyAware: {mode: must}}", "one of preferred, required", id="must"
        ),
        pytest.param("agent: {ignoredXids: [x]}", "agent.ignoredXids", id="no number"),
        pytest.param("agent: {cdi: maybe}", "agent.cdi", id="neither on nor off"),
        pytest.param("agent: {cdi: 1}", "agent.cdi", id="a number for on"),
        pytest.param("agent: {memoryScaling: 0}", "agent.memoryScaling", id="scaled to nothing"),
        pytest.param("agent: {coreScaling: 101}", "agent.coreScaling", id="scaled out of reason"),
        pytest.param("agent: {coreScaling: .nan}", "agent.coreScaling", id="scaled by no number"),
        pytest.param(
            "admission: {coreUtilizationPolicy: forced}",
            "admission.coreUtilizationPolicy",
            id="no such core policy",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(BadSettings) as caught:
        parse(text)

    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("policy", ["", "default", "force", "disable"])
def test_the_core_policies_are_hamis(policy: str) -> None:
    settings = parse(f"admission: {{coreUtilizationPolicy: {policy!r}}}")

    assert settings.admission.coreUtilizationPolicy == policy


@pytest.mark.parametrize("scaling", ["0.01", "100"])
def test_the_ends_of_scaling_are_allowed(scaling: str) -> None:
    assert parse(f"agent: {{memoryScaling: {scaling}}}").agent.memoryScaling == float(scaling)


def test_one_lost_heartbeat_makes_no_node_silent() -> None:
    assert 2 * LONGEST_REPORT_SECONDS <= STALE_SECONDS
