"""How a client behaves; `connect` takes these as keywords."""

from __future__ import annotations

import msgspec

from raceway.codec.mb_inbox import FRAME_LIMIT


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`ca_file`: PEM file to trust instead of the system's certificates, for `mb+tls`, `mb+wss` and `danube+tls`.
    `cert_file`: PEM file with the certificate that the client shows there, and with its key.

    `connect_s`: longest time to connect. `patience_s`: longest wait for an answer (for a request: beyond its own
    timeout), and for a lost connection to come back before a new call gives up. `heartbeat_s`: silence after which the
    bus is asked whether it is there; after twice as long the connection counts as lost.

    `token` opens the queues of a zbus bus that have one, and says on Danube who the client is; `admin_token` opens the
    administration of a bus.

    `name`: who a Seneca client says it is (default: made up). `dialect`: what it speaks, `S` to a bus; `any`, `W`, `L`
    or over TCP `T` to npm listeners. `console`: URL of the bus's console port, where services are attached (default:
    the bus's host, port 8600). `returns`: URL such as `http://127.0.0.1:9000/rtn` where the client listens for answers
    that come later than a bus holds a call (port 0: any).

    `reconnect`: come back after a loss, first after `backoff_s`, then twice as long each time up to `backoff_max_s`.
    `buffer_bytes`: what one subscription holds for a reader that is behind; more is dropped and counted.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    connect_s: float = 5.0
    patience_s: float = 30.0
    heartbeat_s: float = 10.0
    reconnect: bool = True
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0
    buffer_bytes: int = 64 * 1024 * 1024
    frame_limit: int = FRAME_LIMIT
    token: str = ""
    admin_token: str = ""
    name: str = ""
    dialect: str = "S"
    console: str = ""
    returns: str = ""
