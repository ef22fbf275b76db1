"""The page of errors, from the one error tree and the tables of the wires."""

from __future__ import annotations

from collections.abc import Mapping

from docs.generate.markdown import cell, page, table
from raceway import errors
from raceway.net.codec.grpc_head import Status
from raceway.web.answers import status_of
from raceway.wires.danube.codec.status import STATUSES as DANUBE_STATUSES
from raceway.wires.mb.codec.encode import MB_CODES
from raceway.wires.seneca.codec.failure import SENECA_CODES
from raceway.wires.zbus.codec.encode import ZBUS_STATUSES

# They only group others; of peers that is told in full where nothing closer is known (`invalid`).
GROUPS = (errors.RacewayError, errors.PeerError, errors.LocalError)
Kind = type[errors.RacewayError]


def errors_page() -> str:
    tree: list[Kind] = [errors.RacewayError, *error_classes(errors.PeerError), *error_classes(errors.LocalError)]
    kinds = [kind for kind in tree if kind not in GROUPS]
    return page(
        "Errors",
        "Every error that Raceway raises on purpose is a class of `raceway.errors`, under `PeerError` (the peer asked",
        "for what cannot be had) or `LocalError` (we, our disk, our settings). `code` is stable; *again* says that",
        "the same call may succeed later without anybody changing anything (`retriable`).",
        "[How an error looks](../understand/errors.md) on the command line, in logs and on each wire: elsewhere.",
        "",
        *table(["code", "class", "whose doing", "again", ""], [_meaning(kind) for kind in kinds]),
        "## On the wires",
        "",
        "Each wire has its own words. A code that is not in this list is ours (500 on zbus and HTTP), and its",
        "sentence is in the log.",
        "",
        *table(["code", "MB", "zbus", "Seneca", "Danube", "HTTP"], [_words(kind) for kind in tree if _is_told(kind)]),
        "A service that fails is no error of the bus: its answer is passed on with its own code, on HTTP with 502.",
    )


def error_classes(root: Kind) -> list[Kind]:
    """The classes of the tree, in its order."""
    below = [child for child in root.__subclasses__() if child.__module__ == errors.__name__]
    return [root, *(kind for child in below for kind in error_classes(child))]


def _meaning(kind: Kind) -> tuple[str, ...]:
    side = "peer" if issubclass(kind, errors.PeerError) else "ours"
    return f"`{kind.code}`", f"`{kind.__name__}`", side, "yes" if kind.retriable else "", cell(kind.__doc__)


def _is_told(kind: Kind) -> bool:
    """Some wire has a word for it."""
    tables: tuple[Mapping[str, object], ...] = (MB_CODES, SENECA_CODES, DANUBE_STATUSES, ZBUS_STATUSES)
    return any(kind.maybe_entry(words) is not None for words in tables)


def _words(kind: Kind) -> tuple[str, ...]:
    """Through the same tables that the wires use, with what each says where its table is silent."""
    danube = kind.maybe_entry(DANUBE_STATUSES)
    return (
        f"`{kind.code}`",
        f"`{kind.maybe_entry(MB_CODES) or 'INTERNAL_ERROR'}`",
        str(kind.maybe_entry(ZBUS_STATUSES) or 500),
        f"`{kind.maybe_entry(SENECA_CODES) or 'act_execute'}`",
        f"`{(Status.INTERNAL if danube is None else danube).name}`",
        str(status_of(kind.__new__(kind))),
    )
