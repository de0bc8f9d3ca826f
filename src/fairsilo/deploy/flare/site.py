"""A site's end of FLARE: its job process answers the server's steps with what the site's own file gives it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fairsilo.deploy import wire
from fairsilo.deploy.flare.codec import PING, register
from fairsilo.deploy.settings import read_site
from fairsilo.deploy.site import DATA, FAILED, Site
from fairsilo.deploy.vault import Credentials
from fairsilo.errors import FairsiloError

log = logging.getLogger("fairsilo.site")


class SiteExecutor(Executor):
    """Lives for one job. What must outlast it lies in the site's state folder."""

    def __init__(self) -> None:
        super().__init__()
        self.site: Site | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            kit = Path(fl_ctx.get_workspace().get_root_dir())
            register(kit)
            folder, startup = kit.parent, kit / "startup"
            credentials = Credentials(startup / "client.crt", startup / "client.key", startup / "rootCA.pem")
            try:
                settings = read_site(folder / "site.yaml", fl_ctx.get_identity_name())
                torch.set_num_threads(settings.machine.threads)
                self.site = Site(settings, credentials)
            except FairsiloError as problem:
                log.error("%s", problem)
            engine: Any = fl_ctx.get_engine()
            engine.register_aux_message_handler(PING, _pong)
        elif event_type == EventType.END_RUN and self.site is not None:
            self.site.close()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        if self.site is None:
            return Shareable(wire.noted({FAILED: DATA}))
        return Shareable(self.site.answer(task_name, shareable))


def _pong(topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
    return make_reply(ReturnCode.OK)
