"""`fairsilo index`: a DICOM export or a query to a database becomes an index, which a run or a site reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairsilo.cli.output import say

if TYPE_CHECKING:
    from fairsilo.data.indexing import Indexed

index = typer.Typer(help="An index of images from a DICOM export or a database.", no_args_is_help=True)
Out = Annotated[Path, typer.Option(help="the index, a CSV file")]
OUT = Path("index.csv")


@index.command()
def dicom(
    folder: Annotated[Path, typer.Argument(help="the export, with folders inside as they come")],
    labels: Annotated[
        Path | None, typer.Option(help="a CSV file with the columns label and, such as, AccessionNumber or PatientID")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="or the element that is the label, such as ImageLaterality")] = None,
    domain: Annotated[str | None, typer.Option(help="of the images; by default the folder's name")] = None,
    out: Out = OUT,
) -> None:
    """An index of a folder of DICOM files; images of one patient stay in one split."""
    from fairsilo.data.indexing import index_dicom

    _tell(index_dicom(folder, out, domain or folder.resolve().name, labels=labels, tag=tag), out)


@index.command()
def sql(
    database: Annotated[str, typer.Argument(help="a SQLite file, or package:function that returns a connection")],
    query: Annotated[Path, typer.Option(help="a file with a SELECT statement")],
    domain: Annotated[str | None, typer.Option(help="of the samples; by default the query has a column domain")] = None,
    out: Out = OUT,
) -> None:
    """An index of images, or a table of numbers, from a query: its columns are named as theirs are."""
    from fairsilo.data.indexing import index_query

    _tell(index_query(database, query.read_text(encoding="utf-8"), out, domain), out)


def _tell(found: Indexed, out: Path) -> None:
    of = f" of {found.groups:,} groups" if found.groups else ""
    counts = ", ".join(f"{label} {count:,}" for label, count in sorted(found.labels.items()))
    say(f"{out}: {found.rows:,} samples{of}" + (f"; {counts}" if counts else ""))
    for reason, count in found.left_out.items():
        say(f"left out: {count:,} with {reason}" if reason == "no label" else f"left out: {count:,}, {reason}")
