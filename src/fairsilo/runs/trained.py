"""A finished run put to use: predict, evaluate and adapt elsewhere, let a new silo join."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.answers import EXCHANGE, SAVED, adapt_silo
from fairsilo.core.measuring import measure, output_of, read_measure, row_of, tallied
from fairsilo.core.messages import Number, Request
from fairsilo.core.method import Method
from fairsilo.core.needs import parts_in
from fairsilo.core.output import Output, as_vectors
from fairsilo.core.round import open_adaptation, open_personalisation, open_round
from fairsilo.core.samples import SiloData, Split
from fairsilo.core.task import Measure
from fairsilo.data.dataset import Domain
from fairsilo.engine.grouping import at_hand, results_in
from fairsilo.errors import FairsiloError, nearest
from fairsilo.methods.text import method as method_of
from fairsilo.protocols import names_of
from fairsilo.runs import exporting
from fairsilo.runs.finished import FinishedRun
from fairsilo.runs.joining import newcomer

if TYPE_CHECKING:
    from fairsilo.runs.estimator import TrainedClassifier, TrainedRegressor


class Trained(FinishedRun):
    """The models of a finished run and the method's own rules for them; the training data are not needed.

    Args:
        folder: The run folder.
        method: The method, where the run was given one of your own that has no name elsewhere.
        model: The function that makes the network, where the run was given one.
        trust: Import the code that the folder names as `package:name`.

    Attributes:
        silos: The names of the silos that trained, in order.
        classes: The names of the classes, in the order of the columns of `predict`; as an array `classes_`, which
            scikit-learn's tools look for.
        shape: Of one sample.
        roster: Who took part: silos, domains and numbers of samples.
        experiment: The run's settings.

    Raises:
        FairsiloError: The folder holds no finished run, names code to import without `trust`, or needs a method or
            model that is not given.

    Example:
        >>> import fairsilo, tempfile, torch
        >>> split = fairsilo.Split(torch.rand(12, 1, 8, 8), torch.arange(12) % 2)
        >>> silos = tuple(fairsilo.SiloData(name, name, split, split, split) for name in "ab")
        >>> people = fairsilo.Federation("toy", ("no", "yes"), silos)
        >>> result = fairsilo.run(federation=people, method="fedavg", rounds=1, epochs=1, out=tempfile.mkdtemp(),
        ...                       engine={"name": "sequential"})
        >>> trained = fairsilo.load(result.folder)
        >>> images = torch.rand(5, 1, 8, 8)
        >>> trained.predict(images).shape, trained.predict(images, silo="a").shape
        (torch.Size([5, 2]), torch.Size([5, 2]))
        >>> trained.classes_[trained.predict_proba(images).argmax(1)].shape  # names of classes
        (5,)
        >>> classifier = trained.estimator("a")  # as scikit-learn's tools take it
        >>> classifier.predict(images.numpy()).shape, 0 <= classifier.score(images, [0, 1, 0, 1, 0]) <= 1
        ((5,), True)
        >>> sorted(path.name for path in trained.export("safetensors").folder.iterdir())
        ['README.md', 'global.safetensors', 'model.json']
        >>> new = fairsilo.Split(torch.rand(20, 1, 8, 8), torch.arange(20) % 2)
        >>> [(row["domain"], row["model"], row["samples"]) for row in trained.evaluate({"clinic": new})]
        [('clinic', 'global', 20)]
        >>> [row["model"] for row in trained.adapt({"clinic": new}, "tent")]
        ['global', 'adapted']
        >>> joined = trained.personalise("clinic", new)
        >>> joined["samples"], trained.predict(images, silo="clinic").shape
        (14, torch.Size([5, 2]))
        >>> trained.attention(images) is None  # only FedAG's model has it
        True
    """

    @property
    def size(self) -> int | None:
        """To which images are resized; None where they must have the size trained with already."""
        return self.shape[-1] if len(self.shape) == 3 and self.shape[-1] == self.shape[-2] else None

    @property
    def classes_(self) -> NDArray[Any]:
        """The names of the classes, under the name that scikit-learn gives them."""
        return np.array(self.classes)

    # ---------------------------------------------------------------------------------------------------------- answers
    def predict(self, images: Any, silo: str | None = None, which: str = "best") -> Tensor:
        """What the global model, or a silo's own one, says of images.

        Args:
            images: N x `shape`, uint8 or float as the run's data were: a tensor, or an array.
            silo: Whose own model predicts; the global one where left out.
            which: A silo's `best` model by its validation data, or its `last`.

        Returns:
            On the CPU: probabilities (N x classes, of masks N x classes x height x width), or N numbers.

        Raises:
            FairsiloError: The images have another shape, or there is no such model.
        """
        predicted = self.plan.task.predicted
        return torch.cat([predicted(output.prediction) for output in self._outputs(images, silo, which)]).cpu()

    def predict_proba(self, images: Any, silo: str | None = None, which: str = "best") -> NDArray[Any]:
        """Probabilities of classes as scikit-learn's classifiers give them; `predict` for arrays.

        Args:
            images: N x `shape`: an array, or a tensor.
            silo: Whose own model predicts; the global one where left out.
            which: A silo's `best` model by its validation data, or its `last`.

        Returns:
            N x classes, in the order of `classes_`.

        Raises:
            FairsiloError: The run's task is no classification of samples, or as for `predict`.
        """
        if not self.plan.task.classes or self.plan.task.output.per == "pixel":
            raise FairsiloError(
                f"predict_proba is for classes of samples, and the task is {self.roster.task}; use predict"
            )
        return self.predict(images, silo, which).numpy()

    def estimator(
        self, silo: str | None = None, which: str = "best", names: bool = False
    ) -> TrainedClassifier | TrainedRegressor:
        """The global model, or a silo's own one, as a fitted estimator of scikit-learn's; `predict` gives classes.

        Args:
            silo: Whose own model predicts; the global one where left out.
            which: A silo's `best` model by its validation data, or its `last`.
            names: Classes by their names, as `classes_` has them, in place of their numbers.

        Returns:
            With `predict`, `score` and, for classes, `predict_proba` and `classes_`. It takes arrays and tensors,
            N x `shape` or in flat rows. Its `fit` refuses.

        Raises:
            FairsiloError: There is no such model, or the task is one of masks.
        """
        from fairsilo.runs.estimator import estimator_of  # scikit-learn is slow to import

        return estimator_of(self, silo, which, names)

    def export(
        self,
        to: str,
        out: str | Path | None = None,
        silo: str | None = None,
        all_silos: bool = False,
        which: str = "best",
        force: bool = False,
    ) -> exporting.Exported:
        """Write models for other programs, with a model card; each file is read back and compared with `predict`.

        Args:
            to: `onnx` (needs `pip install "fairsilo[onnx]"`), `pt2` (torch.export), `safetensors` (weights by name
                with a description) or `hf` (the Hugging Face layout).
            out: The folder; by default `exported/` and the format in the run folder. An earlier export is replaced.
            silo: Whose own model is written; the global one where left out.
            all_silos: Write the global model and each silo's own.
            which: A silo's `best` model by its validation data, or its `last`.
            force: Replace an earlier export also where its card was edited or files were put beside it.

        Returns:
            `folder`, `files` by model, the largest `difference` found, and `left_out`: models that there are none of.

        Raises:
            FairsiloError: There is no such model or format, the network cannot be written so, or a file does not
                answer as the run does; nothing is written then.
        """
        return exporting.export(self, to, out, silo, all_silos, which, force)

    def features(self, images: Any) -> Tensor | None:
        """What the global model's head is given, a vector for each image; None where the network does not show it."""
        found = [as_vectors(one.features) for one in self._outputs(images) if one.features is not None]
        return torch.cat(found).cpu() if found else None

    def attention(self, images: Any) -> Tensor | None:
        """How much each silo's adapter counts in the joint answer of FedAG's global model.

        Args:
            images: N x `shape`.

        Returns:
            N x silos, in the order of `silos`; None where the global model has no such adapters.
        """
        if self.server.own_model is None:  # what a silo's network may call its attention is not over silos
            return None
        found = []
        for output in self._outputs(images):
            if not isinstance(output.extra, dict) or "attention" not in output.extra:
                return None
            found.append(output.extra["attention"])
        return torch.cat(found).cpu()

    @torch.no_grad()
    def _outputs(self, given: Any, silo: str | None = None, which: str = "best") -> Iterator[Output]:
        """What the global model, or a silo's own one, makes of images, batch by batch."""
        images = torch.as_tensor(given)
        self._check_shape(images.shape[1:])
        split = Split(images, torch.zeros(len(images), dtype=torch.long))
        held = self._holding(SiloData("images", "images", split, split, split), silo, which)
        held.model.eval()
        for batch in held.evaluation_batches(split):
            yield output_of(held, batch)

    def evaluate(
        self,
        domains: Mapping[str, Domain | Split],
        silo: str | None = None,
        which: str = "best",
        adapt: str | None = None,
        groups: str | Sequence[str] = (),
    ) -> list[dict[str, Any]]:
        """Loss and metrics of the global model, or of a silo's own one, on all samples of each domain.

        Args:
            domains: Samples by the name of their domain. Targets number the classes as `classes` does.
            silo: Whose own model is measured; the global one where left out.
            which: A silo's `best` model by its validation data, or its `last`.
            adapt: A test-time adaptation such as `"tent"`; see `adapt`.
            groups: Columns of the samples, such as `"sex, age"`, by whose values they are measured too.

        Returns:
            A row per domain: domain, model, loss, metric (the reported one), samples, metrics, per_class, and `seen`:
            how many of the samples the run trained on or used for validation (None where it kept no record). Where
            the model is adapted at test time, a second row per domain with model `adapted`. With groups the rows of
            models that are not adapted have `groups`: column -> value -> samples, metric and metrics.

        Raises:
            FairsiloError: Samples of another shape, no such model or column, or an adaptation that this model cannot
                have.
        """
        if silo and adapt:
            raise FairsiloError("it is the global model that is adapted at test time; leave out --silo or --adapt")
        method = self._adapting(adapt) if adapt else self.plan.method
        splits = {name: one if isinstance(one, Split) else one.samples for name, one in domains.items()}
        columns = names_of(groups)
        known = {column for split in splits.values() for column in split.attributes}
        for column in columns:
            if column not in known:
                raise FairsiloError(f"the samples have no column {column!r}{nearest(column, known)}")
        rows = []
        for name, split in splits.items():
            self._check_shape(split.shape)
            data = SiloData(name, name, split, split, split)
            held = self._holding(data, silo, which)
            model = "global" if silo is None else f"{silo} ({self.kept(silo, which)})"
            seen = {"seen": self.seen.count(split) if self.seen else None}
            grouped = at_hand(split, columns)
            found = row_of(held.task.measure(tallied(held, "test", grouped)))
            by_group = {"groups": results_in(held.task, grouped)} if columns else {}
            rows.append({"domain": name, "model": model, **found, **by_group, **seen})
            if silo is None and method.owners("adapt"):
                rows.append({"domain": name, "model": "adapted", **row_of(self._adapted(data, method)), **seen})
        return rows

    def adapt(self, domains: Mapping[str, Domain | Split], how: str = "tent") -> list[dict[str, Any]]:
        """Evaluate the global model as it is and adapted to the samples of each domain, without their labels.

        Args:
            domains: As for `evaluate`.
            how: The adaptation: `"tent"`, `"dsbn"`, with settings `"tent(adapt_lr=0.01)"`.

        Returns:
            Two rows per domain, as `evaluate` returns them: model `global`, then `adapted`.

        Raises:
            FairsiloError: `how` does not adapt at test time, or not this model.
        """
        return self.evaluate(domains, adapt=how)

    def _adapting(self, adapt: str) -> Method:
        """The run's method with this test-time adaptation instead of its own."""
        chosen = method_of(adapt)
        if not chosen.owners("adapt"):
            raise FairsiloError(f"{adapt!r} does not adapt at test time; dsbn and tent do")
        (part,) = chosen.owners("adapt")
        if parts_in(part.needs):
            raise FairsiloError(f"{adapt!r} needs what silos keep during the run; train with it: 'fedavg | {adapt}'")
        part.fits(self.model.layout, self.plan.training)
        own = [one.name for one in self.plan.method.owners("adapt")]
        return (self.plan.method.without(*own) if own else self.plan.method) | part

    def _adapted(self, data: SiloData, method: Method) -> Measure:
        server = dataclasses.replace(self.server, method=method)
        request = Request("adapt", server.round, open_adaptation(server, [data.name])[data.name])
        silo = dataclasses.replace(self._silo(data, request), method=method)
        with streams.ambient(self.plan.seed, server.round, data.name, "adapt"):
            return read_measure(adapt_silo(silo), "adapted.test")

    def personalise(
        self, name: str, domain: Domain | Split, validation: float = 0.15, test: float = 0.2
    ) -> dict[str, Any]:
        """Let a new silo join: its own model from the global one by the method's own rule, saved beside the others.

        That is what a silo's round gives: its local training, or the fine-tuning that the method ends with.

        Args:
            name: Of the new silo, and of its model in the run folder.
            domain: Its samples; a `Domain` may say which of them are for training, validation and test.
            validation: Share of the training samples kept for validation, where the data do not say.
            test: Share of the samples kept for testing, where the data do not say.

        Returns:
            silo, samples (it trained on), `global` and `personal` (loss and metrics of the two models by split), and
            model: the file of its own model.

        Raises:
            FairsiloError: Samples of another shape, or a name that is taken.
        """
        self._check_shape((domain if isinstance(domain, Split) else domain.samples).shape)
        data = newcomer(self, name, domain, validation, test)
        server = self.server
        asks: dict[str, Number] = {"evaluate": True, "save": True}
        later = server.method.personalises
        opened = open_personalisation if later else open_round
        message = opened(server, [name], asks)[name]
        kind = "personalise" if later else "train"
        before, measured = {}, [split for split in ("validation", "test") if len(data.split(split))]
        if server.layout.size:
            held = self._holding(data, None, "last")
            before = {split: measure(held, split) for split in measured}
        silo = self._silo(data, Request(kind, server.round, message))
        silo.training = self.plan.training  # its training begins, whatever the schedule of the rounds had come to
        with streams.ambient(self.plan.seed, server.round, name, kind):
            answer = EXCHANGE[kind](silo)
        vector = silo.scratch[SAVED]["last"]
        self.run_folder.write_model(("personal", "last", name), vector, silo.model.layout)
        after = {split: read_measure(answer, f"personal.{split}") for split in measured}
        return {
            "silo": name,
            "samples": len(data.train),
            "global": {split: row_of(found) for split, found in before.items()},
            "personal": {split: row_of(found) for split, found in after.items()},
            "model": str(self.run_folder.model_path(("personal", "last", name))),
        }

    def _check_shape(self, shape: Sequence[int]) -> None:
        if tuple(shape) != self.shape:
            given, wanted = ("x".join(map(str, one)) for one in (shape, self.shape))
            raise FairsiloError(f"the images are {given}, and the model was trained on {wanted}; resize them")
