"""A job as FLARE takes it: configuration alone. The code is the package that is installed at server and sites."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FETCH = 0.1  # seconds after which a site without work asks again; FLARE's own 2 would be most of a short round
_EMPTY: dict[str, Any] = {
    "format_version": 2,
    "task_data_filters": [],
    "task_result_filters": [],
    "components": [],
}


def write_job(folder: Path, run: str, least: int = 1) -> Path:
    """The folder of a job that makes one attempt at a run, with so many sites at least.

    FLARE takes no other characters for a job's name, and a run is named after its method: `fedprox(mu=0.1)`.
    """
    named = re.sub(r"[^A-Za-z0-9_-]+", "-", run).strip("-") or "run"
    folder = folder / named
    config = folder / "app" / "config"
    config.mkdir(parents=True, exist_ok=True)
    controller = {"id": "run", "path": "fairsilo.deploy.flare.server.FederationController", "args": {"run": run}}
    executor = {"path": "fairsilo.deploy.flare.site.SiteExecutor", "args": {}}
    server = {**_EMPTY, "server": {"task_request_interval": FETCH}, "workflows": [controller]}
    client = {**_EMPTY, "executors": [{"tasks": ["*"], "executor": executor}]}
    meta = {"name": named, "min_clients": least, "deploy_map": {"app": ["@ALL"]}, "resource_spec": {}}
    for path, content in (
        (config / "config_fed_server.json", server),
        (config / "config_fed_client.json", client),
        (folder / "meta.json", meta),
    ):
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return folder
