"""The benchmark: this broker beside its peers, with the same driver, in the same run.

    from polycast.bench import run
    report = run(cells=["1:1"], peers=None, rounds=3, seconds=1.0, out=Path("bench"), console=Console())

The rooms: `cells` (what traffic), `wires` (in what bytes), `targets` and `plan` (to whom), `driver` with `links`,
`proof`, `ledger` and `pump`, with `acked`, `lanes` and `tally`, and with `replay` (how it is sent and counted, in
a process of its own), `rounds` and `starts` (in what order), `report`, `table` and `plot` (what came of it).
"""

from polycast.bench.cells import CELLS, Cell
from polycast.bench.report import Report
from polycast.bench.rounds import run
from polycast.bench.targets import PEERS
from polycast.bench.wires import DIALECTS

__all__ = ["CELLS", "DIALECTS", "PEERS", "Cell", "Report", "run"]
