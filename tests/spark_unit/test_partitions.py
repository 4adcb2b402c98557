from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from log.log_builder import half_sealed
from polycast.errors import GoneError
from polycast.log.files.format import Gap
from polycast.log.settings import LogSettings
from polycast.spark.log_view import FolderView
from polycast.spark.partition_reader import to_gap_handler
from polycast.spark.partitions import Range, check_range


def test_the_hint_for_removed_offsets_names_existing_settings(tmp_path: Path) -> None:
    builder = half_sealed(tmp_path / "log")
    (builder.folder / "00000000000000000000.parquet").unlink()
    with pytest.raises(GoneError) as raised:
        check_range(FolderView(builder.folder), Range(50, 200), fail_on_data_loss=True)
    named = re.findall(r"\blog\.(\w+)", raised.value.hint)
    assert named == ["retain_seconds", "retain_bytes"]
    assert {*named} <= {field.name for field in fields(LogSettings)}


def test_missing_messages_fail_a_query_unless_they_were_never_durable(caplog: pytest.LogCaptureFixture) -> None:
    damaged, refused = Gap(10, 20, "lost to damage, see quarantine/x"), Gap(30, 40, "not stored: disk full")
    to_gap_handler(fail=True)(refused)
    with pytest.raises(GoneError, match="offsets 10 to 19 cannot be read: lost to damage") as raised:
        to_gap_handler(fail=True)(damaged)
    assert raised.value.hint == "failOnDataLoss=false skips them; polycast log info lists the damage"
    to_gap_handler(fail=False)(damaged)
    assert "offsets 10 to 19 cannot be read" in caplog.text
