"""Options of a client; `connect` takes them as keywords."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a client. All have defaults; some apply to some wires only.

    TLS (`mb+tls`, `mb+wss`, `danube+tls`). `ca_file`: PEM file to trust instead of the system's certificates.
    `cert_file`: PEM file with the client's certificate and private key, for servers that ask for one.

    Times. `connect_s`: timeout of connecting. `patience_s`: timeout of an answer (for a request: beyond its own
    timeout), and of a call that waits for a lost connection to be reestablished. `heartbeat_s`: silence after which the
    client sends a heartbeat; after twice as long the connection counts as lost.

    Reconnecting. `reconnect`: reconnect after a loss, first after `backoff_s`, then after twice as long each time, up
    to `backoff_max_s`.

    Limits. `buffer_bytes`: messages one subscription holds for a slow reader; more are dropped and counted.
    `frame_limit`: largest message or line accepted from the bus.

    Credentials. `token`: access token of zbus queues; on Danube the bearer token that identifies the client.
    `admin_token`: the administrator's token of the bus.

    Name. `name`: shown as the name of the client. MB: registered as the name of the service. Danube: of the producer of
    `publish`, the beginning of consumers' names, and the subscription of `consume`. Seneca: id of the client as an
    instance (default: a random one). zbus has no place for it.

    The console port. `console`: its URL (default: port 8600 of the host of the bus), for schema calls, and for
    attaching Seneca services. `admin_token` is sent there.

    Seneca. `dialect`: `S` for a bus; `any`, `W` or
    `L`, or over TCP `T`, for npm listeners. `returns`: URL such as `http://127.0.0.1:9000/rtn` (port 0: a free one)
    on which the client listens for answers that take longer than the bus holds a call.
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
    frame_limit: int = 256 * 1024 * 1024
    token: str = ""
    admin_token: str = ""
    name: str = ""
    dialect: str = "S"
    console: str = ""
    returns: str = ""
