"""The monitoring page at `/`: rendered on the server, without script. Names are untrusted and escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from raceway import __version__
from raceway.broker.view import View
from raceway.wires.zbus.codec.admin import PUBSUB, BrokerReport, QueueInfo, TrackTable

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid #8885}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}h1{font-size:1.4rem}"
    "@media(prefers-color-scheme:dark){body{background:#16181d;color:#e6e6e6}a{color:#8ab4f8}}"
)


def render_page(report: BrokerReport, view: View, console: str) -> bytes:
    """Render queues with their backlog and consumers, and the rates of the last second."""
    rows = "".join(_queue_row(info) for info in report.mq_table.values())
    if not rows:
        rows = "<tr><td colspan=6>No queues yet. Create one with <code>cmd=admin&amp;&amp;method=create_mq</code>.</tr>"
    rate = view.rate
    return _whole(
        report.broker,
        f"<p>{rate('router.publish')} messages, {rate('router.request')} requests and {rate('router.response')} "
        f'answers in the last second; {len(view.peers)} connections. <a href="{escape(console)}">Console</a></p>'
        "<table><thead><tr><th>queue<th>kind<th class=n>waiting<th class=n>consumers<th>creator<th>created</tr></thead>"
        f"<tbody>{rows}</tbody></table>",
    )


def render_tracker_page(address: str, table: TrackTable) -> bytes:
    """Render brokers and their queues, for a tracker that is not a broker itself."""
    rows = "".join(
        f"<tr><td>{escape(name)}<td class=n>{len(report.mq_table)}<td>{escape(', '.join(report.mq_table))}</tr>"
        for name, report in table.broker_table.items()
    )
    if not rows:
        rows = "<tr><td colspan=3>No broker has reported itself yet.</tr>"
    head = "<table><thead><tr><th>broker<th class=n>queues<th>names</tr></thead>"
    return _whole(address, f"<p>Tracker</p>{head}<tbody>{rows}</tbody></table>")


def _whole(address: str, content: str) -> bytes:
    """Return a complete document; `content` is HTML."""
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>Raceway: {escape(address)}</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style></head><body>"
        f"<h1>Raceway {escape(__version__)} at {escape(address)}</h1>{content}</body></html>"
    ).encode()


def _queue_row(info: QueueInfo) -> str:
    kind = "publish/subscribe" if info.mode & PUBSUB else "queue"
    made = datetime.fromtimestamp(info.created_time / 1000, UTC).isoformat(" ", "seconds")
    return (
        f"<tr><td>{escape(info.name)}<td>{kind}<td class=n>{info.unconsumed_msg_count}"
        f"<td class=n>{info.consumer_count}<td>{escape(info.creator)}<td>{made}</tr>"
    )
