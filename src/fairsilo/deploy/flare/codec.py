"""FLARE's wire format, made ready for tensors."""

from __future__ import annotations

PING = "fairsilo.ping"  # the topic by which the server asks whether a site's job process is there


def register() -> None:
    """FLARE's own codecs first: whoever encodes one of its types before them makes every later login fail."""
    from nvflare.apis.utils.decomposers import flare_decomposers
    from nvflare.app_common.decomposers import common_decomposers
    from nvflare.app_opt.pt.decomposers import TensorDecomposer
    from nvflare.fuel.utils import fobs

    flare_decomposers.register()
    common_decomposers.register()
    fobs.register(TensorDecomposer)
