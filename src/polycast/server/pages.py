"""What is to be seen on the http port, beside the doors to WebSockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING

from polycast.address import Address
from polycast.dialects.base import Page
from polycast.server import metrics
from polycast.server.counters import Counters, Progress, Totals
from polycast.version import VERSION

if TYPE_CHECKING:
    from polycast.server.server import Server


def find(server: Server, path: str) -> Page | None:
    make = PAGES.get(path)
    return make(server) if make else None


def health(server: Server) -> Page:
    return Page(b"ok\n")


def counted(server: Server) -> Page:
    measure_queues(server)
    counters, totals = metrics.read_counters(server.counters), metrics.read_totals(totals_of(server))
    pipelines = metrics.read_progress(progress_of(server))
    return Page(metrics.to_text([*counters, *totals, *pipelines]).encode(), metrics.CONTENT_TYPE)


def measure_queues(server: Server) -> None:
    """What waits is known by the connections alone; it is added up when somebody asks."""
    for counters in server.counters.values():
        counters.queue_bytes = 0
    for connection in server.connections:
        connection.port.counters.queue_bytes += connection.queued()


def progress_of(server: Server) -> dict[str, Progress]:
    """By the name of the pipeline."""
    known, log_next = server.positions.known(time.monotonic()), server.exchange.hub.next_offset
    return {position.query: Progress(position.lag(log_next)) for _, position in known}


def totals_of(server: Server) -> Totals:
    exchange = server.exchange
    topics = exchange.hub.router.topics
    return Totals(
        publishers_paused=exchange.budget.pauses,
        copies_suppressed=exchange.mesh.suppressed,
        topics_known=len(topics),
        topics_forgotten=topics.forgotten,
        requests_open=len(exchange.requests),
        **_log_totals(server),
    )


def _log_totals(server: Server) -> dict[str, int]:
    log, replays = server.log, server.exchange.replays
    if log is None or replays is None:
        return {}
    return {
        "log_next_offset": log.next,
        "log_settled_offset": log.settled,
        "log_pending_bytes": log.pending_bytes,
        "log_groups": log.writer.groups,
        "log_bytes": log.writer.bytes_written,
        "log_messages_lost": log.messages_lost,
        "log_failed": int(bool(log.writer.failed)),
        "log_segments_sealed": log.keeper.segments_sealed,
        "log_segments_removed": log.keeper.segments_removed,
        "log_segments_quarantined": log.keeper.segments_quarantined,
        "log_batch_ids": len(log.batches),
        "replays_open": replays.count,
        "subscribers_spilled": replays.spills,
    }


# -- the page at / ---------------------------------------------------------------------------------------

FRONT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Polycast</title>
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; --ink: #1c2430; --soft: #5d6878; --paper: #f6f7f9; --card: #fff;
  --line: #dfe3e9; --accent: #0b6bcb; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e4e8ee; --soft: #98a3b3; --paper: #12161c; --card: #1a2028; --line: #2c343f;
    --accent: #6db3f8; }}
}}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }}
main {{ max-width: 52rem; margin: 0 auto; padding: 3rem 1.25rem; }}
h1 {{ margin: 0; font-size: 2rem; letter-spacing: -0.02em; }}
h1 small {{ font-size: 1rem; font-weight: 400; color: var(--soft); letter-spacing: 0; }}
p {{ margin: 0.5rem 0 2rem; color: var(--soft); }}
a {{ color: var(--accent); }}
code {{ font: 0.9em ui-monospace, monospace; }}
.card {{ background: var(--card); border: 1px solid var(--line); border-radius: 10px; overflow-x: auto; }}
table {{ width: 100%; border-collapse: collapse; }}
th, td {{ padding: 0.6rem 1rem; text-align: left; white-space: nowrap; }}
th {{ font-size: 0.8rem; font-weight: 600; color: var(--soft); }}
td {{ border-top: 1px solid var(--line); }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
footer {{ margin-top: 1.5rem; color: var(--soft); }}
</style>
</head>
<body>
<main>
<h1>Polycast <small>{version}</small></h1>
<p>A message broker for five small pub/sub protocols: what is said in one of them is heard in all.</p>
<div class="card">
<table>
<tr><th>Listener</th><th>Address</th><th class="number">Connections</th><th class="number">Messages in</th>
<th class="number">Messages out</th></tr>
{rows}
</table>
</div>
<footer>UBRE speaks at <code>/ubre</code>, nanomsg on any path with its sub-protocol, both over WebSocket.
Counters are at <a href="/metrics">/metrics</a>, a sign of life at <a href="/healthz">/healthz</a>.</footer>
</main>
</body>
</html>
"""


def front(server: Server) -> Page:
    rows = "\n".join(_to_row(server, name, address) for name, address in server.addresses)
    return Page(FRONT.format(version=escape(VERSION), rows=rows).encode(), "text/html; charset=utf-8")


def _to_row(server: Server, name: str, address: Address) -> str:
    """Listeners of one name are counted together."""
    spoken = [counters for (listener, _), counters in server.counters.items() if listener == name]
    numbers = [_sum(spoken, "open"), _sum(spoken, "messages_in"), _sum(spoken, "messages_out")]
    cells = "".join(f'<td class="number">{number:,}</td>' for number in numbers)
    return f"<tr><td>{escape(name)}</td><td><code>{escape(str(address))}</code></td>{cells}</tr>"


def _sum(counters: Iterable[Counters], name: str) -> int:
    return sum(getattr(each, name) for each in counters)


PAGES: dict[str, Callable[[Server], Page]] = {"/": front, "/healthz": health, "/metrics": counted}
