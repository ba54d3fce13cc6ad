"""Decoders for the fields of API objects that the sampler reads.

The status of an unknown kind may have any structure: it is decoded leniently, and fields of other types are ignored.
The API server validates metadata.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

MAX_CONDITIONS = 64


class Owner(msgspec.Struct):
    """An entry of metadata.ownerReferences."""

    uid: str = ""
    name: str = ""
    kind: str = ""
    controller: bool | None = None


class Meta(msgspec.Struct):
    """metadata"""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 -- Kubernetes' names, here and below
    creationTimestamp: str | None = None  # noqa: N815
    labels: dict[str, str] | None = None
    ownerReferences: list[Owner] | None = None  # noqa: N815

    @property
    def owner(self) -> Owner | None:
        """The controller, or the first owner if none is marked as controller."""
        owners = self.ownerReferences or []
        return next((owner for owner in owners if owner.controller), owners[0] if owners else None)


class Condition(msgspec.Struct):
    """An entry of status.conditions."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    lastTransitionTime: str | None = None  # noqa: N815


class _Started(msgspec.Struct):
    startedAt: str | None = None  # noqa: N815
    finishedAt: str | None = None  # noqa: N815


class _Waiting(msgspec.Struct):
    reason: str | None = None
    message: str | None = None


class _State(msgspec.Struct):
    waiting: _Waiting | None = None
    running: _Started | None = None
    terminated: _Started | None = None


class Container(msgspec.Struct):
    """An entry of status.containerStatuses."""

    state: _State | None = None


class PodStatus(msgspec.Struct):
    """status of a pod"""

    phase: str | None = None
    reason: str | None = None
    conditions: list[Condition] | None = None
    containerStatuses: list[Container] | None = None  # noqa: N815


class PodSpec(msgspec.Struct):
    """spec of a pod"""

    nodeName: str | None = None  # noqa: N815


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Meta
    spec: PodSpec | None = None
    status: PodStatus | None = None
    kind: str = "Pod"


class Status(msgspec.Struct):
    """status that follows the Kubernetes API conventions"""

    phase: str | None = None
    reason: str | None = None
    conditions: list[Condition] | None = None
    schedulingConditions: list[Condition] | None = None  # noqa: N815 -- of KAI's pod groups


class BindSpec(msgspec.Struct):
    """spec of a BindRequest"""

    podName: str | None = None  # noqa: N815
    selectedNode: str | None = None  # noqa: N815


class Thing(msgspec.Struct):
    """Any other object; see `read_status` and `read_bind_spec`."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()
    kind: str = ""


class Regarding(msgspec.Struct):
    """The object that an event refers to."""

    uid: str = ""
    name: str = ""
    kind: str = ""


class Series(msgspec.Struct):
    """Series of a repeated event."""

    count: int = 0


class Event(msgspec.Struct):
    """An event of events.k8s.io/v1; components with the older recorder leave eventTime null."""

    metadata: Meta
    kind: str = "Event"
    reason: str | None = None
    note: str | None = None
    eventTime: str | None = None  # noqa: N815
    deprecatedFirstTimestamp: str | None = None  # noqa: N815
    regarding: Regarding | None = None


class Taint(msgspec.Struct):
    """An entry of a node's spec.taints."""

    key: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct):
    """spec of a node"""

    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class NodeStatus(msgspec.Struct):
    """status of a node"""

    allocatable: dict[str, str] | None = None
    conditions: list[Condition] | None = None


class Node(msgspec.Struct):
    """A node."""

    metadata: Meta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None
    kind: str = "Node"


class Beating(msgspec.Struct):
    """ConfigMap of the heartbeat."""

    metadata: Meta
    data: dict[str, str] | None = None
    kind: str = "ConfigMap"


Object = Pod | Thing | Event | Node | Beating


class Refusal(msgspec.Struct):
    """A Status object, the content of an ERROR event of a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""


class ListMeta(msgspec.Struct):
    """metadata of a list"""

    resourceVersion: str = ""  # noqa: N815
    continue_: str = msgspec.field(default="", name="continue")


class RawPage(msgspec.Struct):
    """A page of a list whose objects are decoded one by one, because some are invalid."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Envelope(msgspec.Struct):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


_STATUS = msgspec.json.Decoder(Status)
_BIND = msgspec.json.Decoder(BindSpec)


class ObjectDecoder:
    """Decoders of one kind of object: pages of a list, and lines of a watch."""

    def __init__(self, kind: type[Any]) -> None:
        # A page type per kind: a page is decoded in one pass.
        items: Any = list[kind] | None  # type: ignore[valid-type]
        page = msgspec.defstruct("Page", [("metadata", ListMeta), ("items", items, None), ("kind", str, "")])
        self._page: Any = msgspec.json.Decoder(page)
        self._raw_page = msgspec.json.Decoder(RawPage)
        self._object: Any = msgspec.json.Decoder(kind)
        self._line = msgspec.json.Decoder(Envelope)
        self._refusal = msgspec.json.Decoder(Refusal)

    def decode_page(self, body: bytes) -> tuple[list[Any], ListMeta, int]:
        """Objects of a page, the list's metadata, and the number of invalid objects."""
        try:
            page = _decode_json(self._page, body)
            return page.items or [], page.metadata, 0
        except msgspec.ValidationError:
            pages = _decode_json(self._raw_page, body)
        objects = []
        for raw in pages.items or []:
            with contextlib.suppress(msgspec.MsgspecError):
                objects.append(_decode_json(self._object, raw))
        return objects, pages.metadata, len(pages.items or []) - len(objects)

    def decode_line(self, text: bytes) -> tuple[str, Any]:
        """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object (a Refusal for ERROR)."""
        line = _decode_json(self._line, text)
        decoder = self._refusal if line.type == "ERROR" else self._object
        return line.type, _decode_json(decoder, line.object)


def _decode_json(decoder: Any, text: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(text)
    except (RecursionError, UnicodeDecodeError) as error:
        # Callers handle one kind of error.
        raise msgspec.DecodeError(type(error).__name__) from None


def read_status(thing: Thing) -> Status:
    """Status of an object, as far as it follows the API conventions."""
    return _decode_leniently(_STATUS, thing.status) or Status()


def read_bind_spec(thing: Thing) -> BindSpec:
    """spec of a BindRequest; empty fields for other objects."""
    return _decode_leniently(_BIND, thing.spec) or BindSpec()


def _decode_leniently(decoder: msgspec.json.Decoder[Any], raw: msgspec.Raw) -> Any:
    if not bytes(raw):
        return None
    try:
        return _decode_json(decoder, raw)
    except msgspec.MsgspecError:
        pass
    # One field has another type: keep the others.
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(document, dict):
        return None
    fields = {}
    for field in msgspec.structs.fields(decoder.type):
        try:
            fields[field.name] = msgspec.convert(document.get(field.name), field.type)
        except msgspec.ValidationError:
            continue
    return decoder.type(**fields)
