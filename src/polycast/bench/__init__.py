"""The benchmark: this broker beside its peers, with the same driver, in the same run.

    from polycast.bench import run
    report = run(cells=["1:1"], peers=None, rounds=3, seconds=1.0, out=Path("bench"), console=Console())

what is measured   cells, targets, target_process, server_cluster, wires; relay
the driver         driver (a process of its own), target_connections, preflight, expected_bytes, pump;
                   open_loop, delays; acked_publishing, acked_publishers, ack_counters, ack_latency;
                   log_replay; stream_reader; disk_speed; log_counters, cpu_time
the run            rounds, driver_process, start_times, catch_up, machine, job
the result         report, report_table, plot
"""

from polycast.bench.cells import CELLS, Cell
from polycast.bench.report import BenchReport
from polycast.bench.rounds import run
from polycast.bench.targets import PEERS
from polycast.bench.wires import DIALECTS

__all__ = ["CELLS", "DIALECTS", "PEERS", "BenchReport", "Cell", "run"]
