"""Bodies of zbus administration: creating a queue, and the JSON by which brokers and trackers describe themselves.

data, track_report   {"broker", "lastUpdatedTime", "mqTable": {name: info}}
track_sub, track_pub {"brokerTable": {address: report}, "mqTable": {name: [info, …]}}
"""

from __future__ import annotations

from typing import Any

import msgspec

from raceway.codec.zbus import Admin, Refused

PUBSUB, TEMPORARY = 2, 4
_MAX_MODE_DIGITS = 9


class CreateQueue(msgspec.Struct, frozen=True):
    """`mode` are bits: publish/subscribe, temporary; the others say nothing to us. `start`, which is ours, says where
    a queue begins that is kept: `first`, `last`, an offset, a time."""

    name: str
    mode: int
    token: str = ""
    start: str = ""

    @property
    def is_pubsub(self) -> bool:
        return bool(self.mode & PUBSUB)

    @property
    def is_temporary(self) -> bool:
        return bool(self.mode & TEMPORARY)


def read_create_queue(admin: Admin) -> CreateQueue | Refused:
    """From the JSON body; without one from the keys."""
    if not admin.body:
        keys = admin.keys
        name, token = keys.get("mq_name", keys.get("mq")), keys.get("access_token")
        return _create_queue(admin, name, keys.get("mq_mode"), token, keys.get("start"))
    try:
        body = msgspec.json.decode(admin.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _bad(admin, "json")
    return _create_queue(admin, body.get("mqName"), body.get("mqMode"), body.get("accessToken"), body.get("start"))


def _create_queue(admin: Admin, name: Any, mode: Any, token: Any, start: Any) -> CreateQueue | Refused:
    if not isinstance(name, str) or not name:
        return _bad(admin, "mqName")
    if isinstance(mode, str) and mode.isascii() and mode.isdigit() and len(mode) <= _MAX_MODE_DIGITS:
        mode = int(mode)
    if type(mode) is not int or not 0 <= mode < 10**_MAX_MODE_DIGITS:
        return _bad(admin, "mqMode")
    if token is not None and not isinstance(token, str):
        return _bad(admin, "accessToken")
    if start is not None and (not isinstance(start, str) or mode & (PUBSUB | TEMPORARY)):
        return _bad(admin, "start")
    return CreateQueue(name, mode, token or "", start or "")


def _bad(admin: Admin, what: str) -> Refused:
    return Refused(400, f"Bad format: {what}", admin.msgid)


def kind_mismatch(admin: Admin) -> Refused:
    """A queue of that name exists and is of the other kind."""
    return _bad(admin, "kind mismatch")


# ---- descriptions ---------------------------------------------------------------------------------------------------


class ConsumerInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    remote_addr: str
    status: str = "ready"
    topics: tuple[str, ...] | None = None


class QueueInfo(msgspec.Struct, frozen=True, rename="camel"):
    """One queue of one broker. Whatever a broker of another age does not say is left at its default."""

    broker: str
    name: str
    mode: int = 1
    creator: str = ""
    created_time: int = 0
    unconsumed_msg_count: int = 0
    consumer_count: int = 0
    consumer_info_list: tuple[ConsumerInfo, ...] = ()
    load_factor: float = 0


class BrokerReport(msgspec.Struct, frozen=True, rename="camel"):
    broker: str
    last_updated_time: int = 0
    mq_table: dict[str, QueueInfo] = {}


class TrackTable(msgspec.Struct, frozen=True, rename="camel"):
    broker_table: dict[str, BrokerReport] = {}
    mq_table: dict[str, tuple[QueueInfo, ...]] = {}

    @classmethod
    def of(cls, reports: dict[str, BrokerReport]) -> TrackTable:
        """Reports by address; each queue with every broker that has it, written out in full."""
        queues: dict[str, list[QueueInfo]] = {}
        for report in reports.values():
            for name, info in report.mq_table.items():
                queues.setdefault(name, []).append(info)
        return cls(reports, {name: tuple(infos) for name, infos in queues.items()})


encode_description = msgspec.json.Encoder().encode
_decode_report = msgspec.json.Decoder(BrokerReport, strict=False).decode


def maybe_report(body: bytes) -> BrokerReport | None:
    """What a broker says of itself; None if it says nothing that can be read."""
    try:
        return _decode_report(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
