"""Local fine-tuning of any global model. Differs from what it is composed with by the silo's own model, which is the
new global one after some epochs at home instead of what local training left before the aggregation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairsilo.config import TrainSettings
from fairsilo.core.local import fine_tune
from fairsilo.core.part import About, Part
from fairsilo.core.silo import Silo
from fairsilo.core.vectors import Layout, Slot
from fairsilo.fields import among, setting
from fairsilo.methods.heads import is_body, is_head, require_head

_CHOICES: dict[str, Callable[[Slot], bool]] = {"all": lambda _: True, "head": is_head, "body": is_body}


@dataclass(frozen=True)
class FineTuning(Part):
    """v_i <- epochs of the local optimiser on the task alone, from W; done anew after every round that is evaluated."""

    name = "fine-tuning"
    about = About(
        paper="Wang et al., Federated Evaluation of On-device Personalization, 2019",
        formula="v_i <- W - eta grad L_i, some epochs, after the aggregation",
        results="personal",
    )

    finetune_epochs: int = setting(
        5, "at home; 0: the locally trained model is its own", low=0, search=among(1, 2, 5, 10)
    )
    finetune_steps: int = setting(0, "stop after so many steps; 0: no bound", low=0)
    finetune_what: str = setting("all", "which tensors", choices=tuple(_CHOICES))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.finetune_epochs:
            self.refuse_idle("finetune_epochs=0", "finetune_steps", "finetune_what")

    @property
    def personalises(self) -> bool:
        return self.finetune_epochs > 0

    def fits(self, layout: Layout, training: TrainSettings) -> None:
        if self.finetune_what != "all":
            require_head(self.name, layout)

    def personalise(self, silo: Silo) -> None:
        fine_tune(silo, _CHOICES[self.finetune_what], self.finetune_epochs, self.finetune_steps)
