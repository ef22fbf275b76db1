"""Bodies of zbus administration: creating a queue, and the JSON in which brokers and trackers describe themselves.

data, track_report     {"broker", "lastUpdatedTime", "mqTable": {name: info}}
track_sub, track_pub   {"brokerTable": {address: report}, "mqTable": {name: [info, …]}}
"""

from __future__ import annotations

from typing import Any

import msgspec

from raceway.errors import InvalidValueError
from raceway.model.intents.queues import CreateQueue
from raceway.model.subscriptions import parse_start
from raceway.wires.zbus.codec.encode import refusal_of
from raceway.wires.zbus.codec.head import ZbusRefused
from raceway.wires.zbus.codec.receiver import Admin

# Bits of `mqMode`: 1 is an ordinary queue, 2 publish/subscribe, 4 temporary; from 6.2 on 8 means RPC and is ignored.
PUBSUB, TEMPORARY = 2, 4
# More than any combination of mode bits has; bounds int() on a peer's text.
_MAX_MODE_DIGITS = 9


def read_create_queue(admin: Admin) -> CreateQueue | ZbusRefused:
    """Read the queue to create from the JSON body, or from the keys if there is no body."""
    # 5.0 clients send keys (`mq_name`, `mq_mode`, `access_token`), 5.1 and later a JSON body.
    if not admin.body:
        keys = admin.keys
        name, token = keys.get("mq_name", keys.get("mq")), keys.get("access_token")
        return _create_queue(admin, name, keys.get("mq_mode"), token, keys.get("start"))
    try:
        body = msgspec.json.decode(admin.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return bad_format(admin, "json")
    return _create_queue(admin, body.get("mqName"), body.get("mqMode"), body.get("accessToken"), body.get("start"))


def _create_queue(admin: Admin, name: Any, mode: Any, token: Any, start: Any) -> CreateQueue | ZbusRefused:
    """Check the values. `start`, an extension, is where a durable queue begins: `first`, `last`, an offset, a time."""
    if not isinstance(name, str) or not name:
        return bad_format(admin, "mqName")
    # Clients send the mode as a number or as a string of digits.
    if isinstance(mode, str) and mode.isascii() and mode.isdigit() and len(mode) <= _MAX_MODE_DIGITS:
        mode = int(mode)
    if type(mode) is not int or not 0 <= mode < 10**_MAX_MODE_DIGITS:
        return bad_format(admin, "mqMode")
    if token is not None and not isinstance(token, str):
        return bad_format(admin, "accessToken")
    # Neither a publish/subscribe queue nor a temporary one has a position to begin at.
    if start is not None and (not isinstance(start, str) or mode & (PUBSUB | TEMPORARY)):
        return bad_format(admin, "start")
    try:
        return CreateQueue(name, mode, token or "", parse_start(start or ""))
    except InvalidValueError as error:
        return refusal_of(error, admin.msgid)


def bad_format(admin: Admin, what: str) -> ZbusRefused:
    """Refuse a body; the texts "json" and "kind mismatch" are the real server's."""
    return ZbusRefused(400, f"Bad format: {what}", admin.msgid)


# ---- descriptions ---------------------------------------------------------------------------------------------------


class ConsumerInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A waiting consumer of a queue."""

    remote_addr: str
    status: str = "ready"
    topics: tuple[str, ...] | None = None


class QueueInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A queue of one broker. Fields that a broker of another version does not send keep their defaults."""

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
    """The queues of one broker."""

    broker: str
    last_updated_time: int = 0
    mq_table: dict[str, QueueInfo] = {}


class TrackTable(msgspec.Struct, frozen=True, rename="camel"):
    """The brokers that a tracker knows, and their queues."""

    broker_table: dict[str, BrokerReport] = {}
    mq_table: dict[str, tuple[QueueInfo, ...]] = {}

    @classmethod
    def of(cls, reports: dict[str, BrokerReport]) -> TrackTable:
        """Build the table from reports by address; each queue lists every broker that has it."""
        # Objects are written out in full; the real tracker may write `{"$ref": …}` for a repeated one, which few
        # clients resolve.
        queues: dict[str, list[QueueInfo]] = {}
        for report in reports.values():
            for name, info in report.mq_table.items():
                queues.setdefault(name, []).append(info)
        return cls(reports, {name: tuple(infos) for name, infos in queues.items()})


encode_description = msgspec.json.Encoder().encode
# Lenient (a number may be a string): brokers of other versions report here too.
_decode_report = msgspec.json.Decoder(BrokerReport, strict=False).decode


def maybe_report(body: bytes) -> BrokerReport | None:
    """Decode a broker's report; None if it is malformed."""
    try:
        return _decode_report(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
