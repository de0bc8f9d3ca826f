"""Who may log in at the server: members, each by the certificate that was approved last.

FLARE lets in whatever the authority has signed. Here the federation's folder decides, at every login and heartbeat, so
that it may change while the server runs: packages in `approved` are members', those in `removed` of sites that were.
"""

from __future__ import annotations

import logging
import zipfile
from pathlib import Path
from typing import Any

from cryptography import x509
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import NotAuthenticated

from fairsilo.deploy.flare.kits import ADMIN, members, removed

log = logging.getLogger("fairsilo.gate")


class Gate(FLComponent):
    """Part of the server's parent process. What goes wrong in it refuses the login."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type not in (EventType.CLIENT_REGISTER_RECEIVED, EventType.CLIENT_HEARTBEAT_RECEIVED):
            return
        try:
            folder = Path(fl_ctx.get_workspace().get_root_dir()).resolve().parent
            engine: Any = fl_ctx.get_engine()
            clients = engine.server.client_manager
            gone = set(removed(folder))
            engine.disable_clients(sorted(gone - clients.disabled_clients))
            engine.enable_clients(sorted(clients.disabled_clients - gone))
            keeper = clients.cred_keeper
            if not isinstance(keeper.get_id_verifier(fl_ctx), Approved):
                keeper.id_verifier = Approved(keeper.id_verifier, folder)
        except Exception as problem:
            log.exception("nobody is let in")
            raise NotAuthenticated("the server cannot tell who is a member") from problem


class Approved:
    """What FLARE asks of a certificate, and that it is the one approved for its name.

    Args:
        usual: FLARE's own verifier.
        folder: The federation's.
    """

    def __init__(self, usual: Any, folder: Path) -> None:
        self.usual, self.folder = usual, folder

    def verify_common_name(self, asserted_cn: str, asserter_cert: x509.Certificate, **more: Any) -> bool:
        self.usual.verify_common_name(asserted_cn=asserted_cn, asserter_cert=asserter_cert, **more)
        if asserter_cert != certificate_of(self.folder, asserted_cn):
            log.error("%s was refused: its certificate is not the one that is approved now", asserted_cn)
            raise NotAuthenticated(f"the certificate of {asserted_cn} is not the one that is approved now")
        return True


def certificate_of(folder: Path, name: str) -> x509.Certificate | None:
    """The certificate by which somebody may log in; None for who is no member."""
    if name == ADMIN:
        return x509.load_pem_x509_certificate((folder / "admin" / "startup" / "client.crt").read_bytes())
    package = members(folder).get(name)
    if package is None:
        return None
    with zipfile.ZipFile(package) as content:
        return x509.load_pem_x509_certificate(content.read(f"{name}.crt"))
