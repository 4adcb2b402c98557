from __future__ import annotations

from pathlib import Path

import typer

from polycast.cli.log.data_folder import DATA
from polycast.cli.log.progress import progress
from polycast.text import size_text

NAME = "restore"
HELP = """Restore a backup of the log into a data folder that is empty or does not exist.

Every file is compared with the manifest of the backup. Then a broker started on the folder continues the log."""
EXAMPLE = "polycast log restore /mnt/backup/monday.tar --data /var/lib/polycast"


def run(
    source: str = typer.Argument(help="The folder or the tar file that polycast log backup wrote."),
    data: str = DATA,
) -> None:
    from polycast.log.backup.restore import restore

    with progress() as report:
        found = restore(Path(source), Path(data), report.begin)
    offsets = f"offsets {found.first:,} to {found.next - 1:,}" if found.next > found.first else "no messages"
    typer.echo(f"log {found.log} of {found.created}: {offsets}, {size_text(found.total)}; restored to {data}")
