"""AdmissionReview v1: the API server's question → the answer to it.

Pure: what is judged is in `cardwise.admission`; here is how it is asked and told.
"""

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from cardwise.admission import Admission, admit, admit_workload, json_patch
from cardwise.errors import BadBody
from cardwise.settings import Settings
from cardwise.wire.fields import at, mapping, quoted, text

BODY_BYTES = 16 * 1024 * 1024
"""The largest body that is read. A Pod has 3 MiB at most, and JSON may make it longer."""
_API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
WORKLOADS = {"apps": ("deployments", "statefulsets", "daemonsets"), "batch": ("jobs", "cronjobs")}
"""What makes Pods, by API group."""
_WARNING_CHARACTERS = 256
"""Of one warning: the API server cuts longer ones once all are too long together."""
_WARNINGS_CHARACTERS = 4096
"""Of all warnings: the API server leaves out what is beyond."""
_DENIAL_CHARACTERS = 1024
_TOO_DEEP = "The Pod is nested too deep."


class Result(StrEnum):
    """What became of one request: the label of the metrics."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """A Pod of ours that is as it should be."""
    IGNORED = "ignored"
    """None of our business: no cards, opted out, or no new Pod."""
    TESTED = "tested"
    """The controller's test whether we are reached."""
    DENIED = "denied"
    BAD = "bad"
    """Nothing that an API server sends."""
    LATE = "late"
    """It did not come in time."""
    ERROR = "error"
    """A mistake of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One AdmissionRequest, as far as it matters."""

    uid: str
    """Of the request, not of the Pod."""
    pod: dict[str, Any] | None = None
    """The Pod that is to be created; None: the request is about something else."""
    template: dict[str, Any] | None = None
    """The template of Pods in the PodTemplate by which the controller tests us."""
    workload: dict[str, Any] | None = None
    """The Deployment, Job… that is to be created or changed, by which Pods are made."""
    about: str
    """``namespace/name`` for logs; a name that is still to be made ends in an asterisk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API server is told."""

    body: bytes
    result: Result
    about: str
    message: str = ""
    """Why the Pod was denied."""


def answer(body: bytes, settings: Settings) -> Answer:
    """Answer an AdmissionReview.

    Nothing is kept, so a dry run is answered like any other request. The same body gives the same
    answer.

    Raises:
        BadBody: one sentence.
    """
    question = asked(body)
    try:
        if question.workload is not None:
            return _told(question, admit_workload(question.workload, settings))
        if question.template is not None:
            return _tested(question, question.template, settings)
        if question.pod is None:
            return _told(question, Admission(pod={}, matched=False))
        return _told(question, admit(question.pod, settings))
    except RecursionError as error:
        raise BadBody(_TOO_DEEP) from error


def asked(body: bytes) -> Question:
    """Read an AdmissionReview.

    Raises:
        BadBody: one sentence.
    """
    try:
        review: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadBody(f"The body is not JSON: {error}.") from error
    version, kind = at(review, "apiVersion"), at(review, "kind")
    if (version, kind) != (_API_VERSION, _KIND):
        raise BadBody(
            f"The body is {quoted(kind)} of {quoted(version)}, not {_KIND} of {_API_VERSION}."
        )
    request = at(review, "request")
    uid = text(at(request, "uid"))
    if not uid:
        raise BadBody("The review has no request with a uid.")
    about = _about(request)
    if _writes_a_workload(request):
        return Question(uid=uid, workload=mapping(at(request, "object")), about=about)
    if _creates(request, "podtemplates"):
        return Question(uid=uid, template=mapping(at(request, "object", "template")), about=about)
    if not _creates(request, "pods"):
        return Question(uid=uid, about=about)
    pod = mapping(at(request, "object"))
    if not pod:
        raise BadBody("The request is to create a Pod, and has no object.")
    return Question(uid=uid, pod=pod, about=about)


def _creates(request: object, resource: str) -> bool:
    """Whether it is about a new Pod, say, not about one that is there or about a part of one."""
    return (
        at(request, "operation") == "CREATE"
        and at(request, "resource", "group") in ("", None)
        and at(request, "resource", "version") == "v1"
        and at(request, "resource", "resource") == resource
        and not at(request, "subResource")
    )


def _writes_a_workload(request: object) -> bool:
    """Whether it is about a new or changed Deployment, Job…, and not about a part of one."""
    resource = at(request, "resource", "resource")
    return (
        at(request, "operation") in ("CREATE", "UPDATE")
        and resource in WORKLOADS.get(text(at(request, "resource", "group")), ())
        and not at(request, "subResource")
    )


def _about(request: object) -> str:
    # The namespace in the Pod may be left out by whoever creates it; the request's never is.
    name = text(at(request, "name")) or text(at(request, "object", "metadata", "name"))
    begun = text(at(request, "object", "metadata", "generateName"))
    return _line(f"{text(at(request, 'namespace'))}/{name or f'{begun}*'}", 320)


def _told(question: Question, admission: Admission) -> Answer:
    response: dict[str, Any] = {"uid": question.uid, "allowed": admission.denial is None}
    if warnings := shown(admission.warnings):
        response["warnings"] = warnings
    denial = ""
    if admission.denial is not None:
        denial = _line(admission.denial, _DENIAL_CHARACTERS)
        response["status"] = {"code": 403, "reason": "Forbidden", "message": denial}
        result = Result.DENIED
    elif question.pod is not None and admission.pod is not question.pod:
        response |= _patched(question.pod, admission.pod)
        result = Result.CHANGED
    else:
        result = Result.UNCHANGED if admission.matched else Result.IGNORED
    return Answer(body=_body(response), result=result, about=question.about, message=denial)


def _tested(question: Question, template: dict[str, Any], settings: Settings) -> Answer:
    """What would become of a Pod of this template, shown on the template itself."""
    admitted = admit(template, settings).pod
    response: dict[str, Any] = {"uid": question.uid, "allowed": True}
    if admitted is not template:
        response |= _patched({"template": template}, {"template": admitted})
    return Answer(body=_body(response), result=Result.TESTED, about=question.about)


def _patched(before: dict[str, Any], after: dict[str, Any]) -> dict[str, str]:
    """The part of a response by which the one is made the other."""
    patch = _written(json_patch(before, after))
    return {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}


def _body(response: dict[str, Any]) -> bytes:
    return orjson.dumps({"apiVersion": _API_VERSION, "kind": _KIND, "response": response})


def _written(patch: list[dict[str, Any]]) -> bytes:
    # A patch may hold a part of the Pod, and what is read may be nested four times as deep as what
    # can be written back.
    try:
        return orjson.dumps(patch)
    except orjson.JSONEncodeError as error:
        raise BadBody(_TOO_DEEP) from error


def shown(warnings: tuple[str, ...]) -> list[str]:
    """Warnings as the API server hands all of them on: none is dropped or cut in silence.

    It drops a text with a control character, and where all together have more than 4,096 characters
    it cuts each at 256 and leaves out the last.
    """
    lines = [_line(warning, _WARNING_CHARACTERS) for warning in warnings]
    if sum(map(len, lines)) <= _WARNINGS_CHARACTERS:
        return lines
    room = _WARNINGS_CHARACTERS - _WARNING_CHARACTERS
    kept: list[str] = []
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return [*kept, f"{len(lines) - len(kept)} more warnings are left out"]


def _line(sentence: str, most: int) -> str:
    """At most so many characters without any control character."""
    # Names are in the sentence as the user wrote them: nobody has checked the Pod yet.
    line = "".join(character if character.isprintable() else " " for character in sentence)
    return line if len(line) <= most else line[: most - 1] + "…"
