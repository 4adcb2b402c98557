"""What a run reports of its position."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from log.log_builder import LogBuilder
from polycast.pipelines.runtime.definition import PipelineRun
from polycast.pipelines.runtime.runner import RunTotals


def test_an_idle_pipeline_has_no_lag(tmp_path: Path) -> None:
    """Its query stays where its last message was; the log goes on with messages of other topics."""
    (tmp_path / "log").mkdir()
    builder, reporter, pipeline = LogBuilder(tmp_path / "log"), Mock(), Mock()
    pipeline.name = "traffic"
    builder.segment(10)
    totals = RunTotals(PipelineRun(Mock(), pipeline, tmp_path, "", None), Mock(), reporter)
    totals.report("running")
    totals.set_idle()
    builder.segment(5)
    totals.set_idle()
    assert [call.kwargs["offset"] for call in reporter.report.call_args_list] == [0, 10, 15]
    assert totals.to_report([]).lag == 0
