"""`fairsilo check`: the laws of methods, tried on one of them."""

from __future__ import annotations

from typing import Annotated

import typer

from fairsilo.cli.completing import methods
from fairsilo.cli.output import AsJson, say, show_json


def check(
    method: Annotated[
        str,
        typer.Argument(help="package:name, a method of the catalogue, or a composition", autocompletion=methods),
    ],
    as_json: AsJson = False,
) -> None:
    """Try a method by the laws that hold for all methods; exit code 1 where one is broken.

    Takes under a minute for a method without a pretrained backbone.
    """
    from fairsilo.laws.check import FAILED
    from fairsilo.laws.check import check as findings

    found = []
    for finding in findings(method):
        found.append(finding)
        if not as_json:
            say(f"{finding.status:<14}  {finding.law}: {finding.detail or finding.says}")
    if as_json:
        show_json([finding.as_dict() for finding in found])
    if any(finding.status == FAILED for finding in found):
        raise typer.Exit(1)
