"""`raceway peer …`: connected peers of a running bus, over the console port."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from raceway.cli import options, output

PATH = "/api/peers"

peer_app = options.Commands("peer", "Peers, which are connected clients: list, disconnect.")


@peer_app.command("list")
def list_peers(
    cli: options.OverConsole,
    contains: Annotated[str, "--contains TEXT", "Only peers whose name, id, wire or address contains this text."] = "",
) -> None:
    """List connected peers."""
    page = cli.ask(PATH, query={"contains": contains})
    columns = {
        "id": "id", "name": _name_of, "wire": "wire", "address": "address",
        "connected": lambda row: output.moment(row["connected_us"]), ">subscriptions": "subscriptions",
    }  # fmt: skip
    cli.show(page["peers"], columns, "Connected peers")
    if page["total"] > len(page["peers"]):
        cli.note(f"the first {len(page['peers']):,} of {page['total']:,} peers; --contains finds others")


@peer_app.command()
def disconnect(
    cli: options.OverConsole, peer: Annotated[str, "Id, name or address of the peer, as shown by `list`."]
) -> None:
    """Close the connection of a peer. It may connect again; open requests to it end at their deadline."""
    found = _find(cli, peer)
    done = cli.ask(f"{PATH}/{quote(found['id'], safe='')}", "DELETE")
    cli.tell(done, f"peer {found['id']} ({found['wire']}) is disconnected")


def _name_of(row: dict[str, Any]) -> str:
    """The name that a peer gave, or those of its producers and consumers."""
    return row["name"] or ", ".join(row["aliases"])


def _find(cli: options.OverConsole, wanted: str) -> dict[str, Any]:
    """Return the one peer of this id, name or address. Ends the command if there are none or several."""
    page = cli.ask(PATH, query={"contains": wanted})
    found = [row for row in page["peers"] if wanted in (row["id"], row["name"], row["address"], *row["aliases"])]
    if not found:
        output.fail(f"no peer has the id, name or address {wanted!r}: see `raceway peer list`")
    if len(found) > 1:
        output.fail(f"{len(found)} peers are called {wanted!r}: name one by its id, as shown by `raceway peer list`")
    return dict(found[0])
