"""What `fairsilo bench` found, as a table to paste."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def markdown(found: Mapping[str, Any]) -> str:
    """Two sentences about what was measured where, and a table."""
    job, machine, mean = found["job"], found["machine"], found["mean"]
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    cores = f"{machine['cores']} cores ({machine['processor']}){gpu}"
    lines = [
        f"fairsilo {machine['fairsilo']}, torch {machine['torch']}, {cores}: "
        f"{job['model']}, {job['silos']} silos x {job['samples']} images of {job['size']} pixels, batches of "
        f"{job['batch']}, one epoch a round, one thread a process; {job['rounds']} rounds of each, in turns.",
        "",
        "| engine | seconds a round (range) | first round | samples a second | memory |",
        "|---|---|---|---|---|",
    ]
    for row in found["engines"]:
        lines.append(
            f"| {row['engine']} | {row['seconds']:.2f} ({row['low']:.2f} to {row['high']:.2f}) | {row['first']:.2f} | "
            f"{row['samples_per_second']:,.0f} | {row['memory'] / 2**20:,.0f} MiB |"
        )
    share = f"{mean['share_of_copy']:.0%} of what a copy does"
    lines += ["", f"The mean of models moves {mean['gigabytes_per_second']:.1f} GB/s, {share}."]
    return "\n".join(lines)
