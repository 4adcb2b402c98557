from __future__ import annotations

from pathlib import Path

import typer

from polycast.cli.log.data_folder import DATA, open_log
from polycast.cli.log.progress import progress
from polycast.text import size_text

NAME = "backup"
HELP = """Copy the log, with the broker running or stopped, to a new folder, or to a file that ends with .tar.

The backup is the log up to a durable offset, with the sequences of topics and the batch ids. It is read back.
Damage in the log is reported, with the exit code 1. Tokens, certificates and the configuration are not part of
it."""
EXAMPLE = "polycast log backup /mnt/backup/monday.tar --data /var/lib/polycast"


def run(
    target: str = typer.Argument(help="The folder to create, or the file, ending with .tar."), data: str = DATA
) -> None:
    from polycast.log.backup.backup import backup, check_target
    from polycast.log.files.state import is_running
    from polycast.log.repair.verify import LogFinding, verify

    folder, backup_folder = open_log(data), Path(target)
    check_target(folder, backup_folder)
    damage = 0
    with progress() as report:
        for found in verify(folder, is_running(folder)):
            if isinstance(found, LogFinding):
                damage += not found.note
            else:
                report.show("verifying", found.done, found.total)
        made = backup(folder, backup_folder, report.begin)
    offsets = f"offsets {made.first:,} to {made.next - 1:,}" if made.next > made.first else "no messages"
    typer.echo(
        f"log {made.log}: {offsets}, {size_text(made.total)} in {len(made.files):,} files; written to {target}"
    )
    if damage:
        typer.echo(f"damage: {damage:,}, in the backup as well; polycast log verify names it", err=True)
        raise typer.Exit(1)
