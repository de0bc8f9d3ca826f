"""The formats of an export: how a module is written, and how the file is read back and asked."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fairsilo.core.files import save_tensors
from fairsilo.engine.blueprint import Blueprint
from fairsilo.errors import FairsiloError
from fairsilo.runs.exported import Answering, read_exported
from fairsilo.runs.names import refuse_unknown_export

if TYPE_CHECKING:
    from torch.export import ExportedProgram

INPUT = "samples"
BATCH = "batch"
ORIGINS = ("stack_trace", "source_fn_stack", "from_node")  # what torch keeps of the code behind each operation
TRACE = "pkg.torch.onnx.stack_trace"
Asked = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Place:
    """Where a model is written: a silo's own or the global one, below the folder that holds its description."""

    silo: str | None
    folder: Path
    file: str

    @property
    def name(self) -> str:
        """What it is called in descriptions; a silo may be called `global` too."""
        return "global" if self.silo is None else "silos/global" if self.silo == "global" else self.silo

    @property
    def path(self) -> Path:
        return self.folder / self.file


@dataclass(frozen=True)
class Source:
    """One model to be written.

    Attributes:
        place: Where to.
        module: What is written.
        samples: Some samples, to trace it with.
        output: What its answers are called.
        facts: What a file says of itself, where its format has a place for it.
        plan: From which the network can be made again.
    """

    place: Place
    module: Answering
    samples: Tensor
    output: str
    facts: Mapping[str, str]
    plan: Blueprint


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        name: Behind `--to`.
        suffix: Of its files.
        write: Writes a model.
        read: The file as a function of samples, as its users will load it.
        stands_alone: Whether the whole computation is in the file; else it is weights for a network that is made again.
        packages: What it needs besides what fairsilo needs.
    """

    name: str
    suffix: str
    write: Callable[[Source], None]
    read: Callable[[Source], Asked]
    stands_alone: bool = True
    packages: tuple[str, ...] = ()

    def check(self) -> None:
        for package in self.packages:
            if find_spec(package) is None:
                raise FairsiloError(f'--to {self.name} needs {package}: pip install "fairsilo[onnx]"')


def format_of(name: str) -> Format:
    refuse_unknown_export(name)
    return FORMATS[name]


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch's exporters say about themselves: deprecations inside, packages that are not there."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript")]
    levels = [one.level for one in loggers]
    try:
        for one in loggers:
            one.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)


def traced(source: Source) -> ExportedProgram:
    """The computation of a module for batches of any size.

    Raises:
        FairsiloError: It cannot be traced so.
    """
    shapes = ({0: torch.export.Dim(BATCH, min=1)},)
    reason: Exception | None = None
    for strict in (False, True):  # the first is quicker; the second reads Python code, and so understands len(tensor)
        try:
            # with gradients, as a network may take another way where there are none (PromptFL's known contexts)
            with _quietly(), torch.enable_grad():
                program = torch.export.export(source.module, (source.samples,), dynamic_shapes=shapes, strict=strict)
            return _without_origins(program)
        except Exception as problem:  # noqa: BLE001 - whatever the tracer and the network's own code raise
            reason = reason or problem
    raise FairsiloError(
        f"the network cannot be traced for batches of any size ({said(reason)}); "
        "--to safetensors and --to hf write its weights instead"
    ) from reason


def _without_origins(program: ExportedProgram) -> ExportedProgram:
    """Without paths and lines of the code it was traced from, which would be written: a file is passed on.

    Modules keep their places and the last names of their classes, since `torch.export.unflatten` goes by them.
    """
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            for key in ORIGINS:
                node.meta.pop(key, None)
            stack = node.meta.get("nn_module_stack") or {}
            if stack:
                node.meta["nn_module_stack"] = {key: (path, _last_name(kind)) for key, (path, kind) in stack.items()}
    return program


def _last_name(kind: Any) -> str:
    return str(kind if isinstance(kind, str) else kind.__qualname__).rpartition(".")[2]


def said(problem: Exception | None) -> str:
    """The first line of an error, short; of the one that torch explains at length, what it comes to."""
    text = str(problem).strip()
    if "specialized it to be a constant" in text:
        return "its code takes the size of a batch as a fixed number, as len(tensor) does"
    return f"{type(problem).__name__}: {text.splitlines()[0][:200]}" if text else type(problem).__name__


# --------------------------------------------------------------------------------------------------------------- pt2
def _write_pt2(source: Source) -> None:
    program = traced(source)
    with _quietly():
        torch.export.save(program, source.place.path, extra_files={"fairsilo.json": json.dumps(dict(source.facts))})


def _read_pt2(source: Source) -> Asked:
    with _quietly():
        loaded: Any = torch.export.load(source.place.path).module()
    return lambda samples: _tensor(loaded(samples))


# -------------------------------------------------------------------------------------------------------------- onnx
def _write_onnx(source: Source) -> None:
    program = traced(source)
    try:
        with _quietly():
            made: Any = torch.onnx.export(
                program,
                (source.samples,),
                dynamo=True,
                verbose=False,
                input_names=[INPUT],
                output_names=[source.output],
                dynamic_shapes=({0: BATCH},),
            )
            made.model.metadata_props.update(source.facts)
            for graph in (made.model.graph, *made.model.functions.values()):
                for node in graph.all_nodes():  # the converter traces again, and notes its own code
                    node.metadata_props.pop(TRACE, None)
            made.save(str(source.place.path))
    except Exception as problem:
        raise FairsiloError(
            f"the network has operations that ONNX cannot express ({said(problem)}); --to pt2 writes them"
        ) from problem


def _read_onnx(source: Source) -> Asked:
    onnxruntime: Any = import_module("onnxruntime")  # which has no types
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(str(source.place.path), options, providers=["CPUExecutionProvider"])
    return lambda samples: torch.from_numpy(session.run(None, {INPUT: samples.numpy()})[0])


# ------------------------------------------------------------------------------------------------------- safetensors
def _write_weights(source: Source) -> None:
    # copies, because the format refuses tensors that share their storage, as tied ones do
    tensors = {name: one.detach().clone().contiguous() for name, one in source.module.network.state_dict().items()}
    save_tensors(tensors, source.place.path, {"format": "pt", **source.facts})


def _read_weights(source: Source) -> Asked:
    """By the description that lies beside, as anybody else will, and with what has no name elsewhere."""
    model, method = source.plan.model, source.plan.method
    maker = None if isinstance(model, str) else model
    loaded = read_exported(source.place.folder, source.place.name, model=maker, method=method, trust=True)
    return lambda samples: _tensor(loaded(samples))


def _tensor(found: Any) -> Tensor:
    assert isinstance(found, Tensor)
    return found.detach()


FORMATS = {
    one.name: one
    for one in (
        Format("onnx", "onnx", _write_onnx, _read_onnx, packages=("onnx", "onnxscript", "onnxruntime")),
        Format("pt2", "pt2", _write_pt2, _read_pt2),
        Format("safetensors", "safetensors", _write_weights, _read_weights, stands_alone=False),
        Format("hf", "safetensors", _write_weights, _read_weights, stands_alone=False),
    )
}
