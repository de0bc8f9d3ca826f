"""Pretrained backbones by `transformers`: CLIP, ViT, ResNet and EfficientNet (SigLIP in siglip.py), by name, by local
path, or the tiny ones shipped here.

A backbone is loaded once and shared by all networks built on it; it is frozen, and nothing here changes it. What is
trained beside it (adapters, prompts, heads) belongs to the network that holds it. A method that adapts no backbone
trains all of it, on a copy of its own (`whole`).
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.errors import FairsiloError
from fairsilo.models.attention import written_out
from fairsilo.models.described import SHIPPED
from fairsilo.models.encoder_prompts import appended, context_after

if TYPE_CHECKING:
    pass

TEMPLATE = "a photo of a {}"


def backbone_network(name: str, classes: int) -> nn.Module:
    """The network `tiny-clip`, `tiny-vit`, `KIND:NAME`; NAME is a path or a Hub name."""
    if name in SHIPPED:
        kind, source = name.removeprefix("tiny-"), str(files("fairsilo.models").joinpath("pretrained", name))
    else:
        kind, _, source = name.partition(":")
    if not source:
        raise FairsiloError(f"model {name!r} names no weights; write {kind}:PATH or {kind}:NAME")
    return Backbone.known[kind](source, classes)


# ------------------------------------------------------------------------------------------------------------- loading
@cache
def _loaded(kind: str, source: str) -> Any:
    """The pretrained model, frozen, in evaluation mode and on the CPU; shared, so never to be changed or moved."""
    import transformers

    local = Path(source).is_dir()
    if not local and not re.fullmatch(r"[\w.-]+/[\w.-]+", source):
        raise FairsiloError(f"there is no folder {source!r} with the weights of a backbone; give PATH, or OWNER/NAME")
    logs: Any = transformers.utils.logging
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(
        logging.ERROR
    )  # it tells of every attempt to connect; the sentence below says enough
    _refuse_pickles(kind, Path(source))
    loader: Any = {
        "clip": transformers.CLIPModel,
        "siglip": transformers.SiglipModel,
        "vit": transformers.ViTModel,
        "resnet": transformers.ResNetModel,
        "efficientnet": transformers.EfficientNetModel,
    }[kind]
    extra = {"add_pooling_layer": False, "attn_implementation": written_out()} if kind == "vit" else {}
    try:
        # shapes that do not fit would be an error that points to a log, which is off; below they are named instead
        model, found = loader.from_pretrained(
            source,
            output_loading_info=True,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            use_safetensors=True,
            **extra,
        )
    except Exception as problem:  # a damaged file or a wrong config: each of the libraries has errors of its own for it
        where = "" if local else f"; {source} is no folder here, so they were looked for on the Hub"
        raise FairsiloError(
            f"the weights of the backbone {kind}:{source} cannot be loaded{where}: {_reason(problem)}"
        ) from problem
    # names, or names with shapes, depending on the version
    unfit = [key if isinstance(key, str) else key[0] for key in found["mismatched_keys"]]
    if unfit:
        raise FairsiloError(
            f"the weights of the backbone {kind}:{source} are not of the shape that its config.json says: "
            f"{len(unfit)} tensors differ, such as {min(unfit)}"
        )
    missing = [key for key in found["missing_keys"] if "position_ids" not in key]
    if missing:
        raise FairsiloError(
            f"the weights of the backbone {kind}:{source} lack {len(missing)} tensors, such as {sorted(missing)[0]}"
        )
    return model.eval().requires_grad_(False)


def _refuse_pickles(kind: str, folder: Path) -> None:
    """Weights in PyTorch's own format are pickles, which may run code when they are opened."""
    pickles = sorted(file for file in folder.glob("*") if file.suffix in (".bin", ".pt", ".pth", ".ckpt"))
    if pickles and not list(folder.glob("*.safetensors")):
        raise FairsiloError(
            f"the weights of the backbone {kind}:{folder} are in {pickles[0].name}, which may run code when it is "
            "opened; give them as model.safetensors"
        )


def _reason(problem: Exception) -> str:
    """An error of the loader's in one line; with its name where it may be hardly a sentence, such as a missing key."""
    said = " ".join(str(problem).split())[:200]
    plain = said and isinstance(problem, (OSError, ValueError))
    return said if plain else f"{type(problem).__name__}: {said}".rstrip(": ")


@cache
def _placed(kind: str, source: str, device: torch.device, dtype: torch.dtype) -> Any:
    """The shared backbone on another device: a second one, so that runs of a process side by side keep theirs."""
    model = _loaded(kind, source)
    here: Tensor = next(model.parameters())
    return model if (here.device, here.dtype) == (device, dtype) else copy.deepcopy(model).to(device, dtype)


@cache
def _tokenizer(source: str) -> Any:
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    except Exception as problem:  # a damaged file: as with the weights
        raise FairsiloError(f"the tokenizer of clip:{source} cannot be loaded: {_reason(problem)}") from problem
    wrong = _foreign(tokenizer, _loaded("clip", source).config.text_config)
    if wrong:
        raise FairsiloError(f"the tokenizer of clip:{source} is missing or does not belong to the weights: {wrong}")
    return tokenizer


def _foreign(tokenizer: Any, config: Any) -> str:
    """What shows that a tokenizer is not the weights' own: without its files `transformers` makes an empty one."""
    known, taken = len(tokenizer), int(config.vocab_size)
    if known > taken or 2 * known < taken:  # embeddings may be filled up to a round number
        return f"it has {known} tokens, and the text encoder {taken}"
    one, other = (list(tokenizer(word)["input_ids"]) for word in ("cat", "dog"))
    if one == other:
        return "'cat' and 'dog' are the same to it"
    # CLIP reads a text's features at its end; an end numbered 2 is from before transformers knew the number, and
    # stands for the highest one
    end = max(one) if config.eos_token_id == 2 else config.eos_token_id
    if end not in one or one.index(end) != len(one) - 1:
        return "its texts do not end as those of the text encoder"
    return ""


# text features of class prompts by source, prompts and device: the encoder is frozen, so they never change
_class_features: dict[tuple[str, tuple[str, ...], torch.device], Tensor] = {}


@cache
def _pixels(kind: str, source: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation that the weights were trained with.

    They are looked for where `transformers` does: in processor_config.json, which whole processors are saved to, then
    in preprocessor_config.json. Where neither says, they are those that most weights of the kind were trained with:
    OpenAI's for CLIP, 0.5 for ViT and SigLIP (images stay in [-1, 1]), ImageNet's for ResNet and EfficientNet.
    """
    from transformers import image_utils

    known: Any = image_utils
    usual = {
        "clip": (known.OPENAI_CLIP_MEAN, known.OPENAI_CLIP_STD),
        "siglip": (known.IMAGENET_STANDARD_MEAN, known.IMAGENET_STANDARD_STD),
        "vit": (known.IMAGENET_STANDARD_MEAN, known.IMAGENET_STANDARD_STD),
        "resnet": (known.IMAGENET_DEFAULT_MEAN, known.IMAGENET_DEFAULT_STD),
        "efficientnet": (known.IMAGENET_DEFAULT_MEAN, known.IMAGENET_DEFAULT_STD),
    }[kind]
    found = _settings(source, "preprocessor_config.json")
    found.update(_settings(source, "processor_config.json").get("image_processor") or {})
    mean, deviation = found.get("image_mean") or usual[0], found.get("image_std") or usual[1]
    return tuple(mean), tuple(deviation)


def _settings(source: str, name: str) -> dict[str, Any]:
    """A file of settings beside the weights; empty where there is none."""
    from transformers.utils.hub import cached_file

    try:
        path = cached_file(source, name, _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError):
        path = None
    try:
        return dict(json.loads(Path(path).read_text(encoding="utf-8"))) if path else {}
    except (TypeError, ValueError) as problem:
        raise FairsiloError(f"the {name} of the backbone {source} is no JSON object: {_reason(problem)}") from problem


class Backbone(nn.Module):
    """What every network on a backbone has: the size of images it takes and how they are normalised."""

    known: ClassVar[dict[str, type[Backbone]]] = {}  # by kind
    kind = ""
    short_floats = False  # the backbone computes in bfloat16; what comes out is float32 again
    frozen = True  # the weights are the shared ones; otherwise a copy, of which something is trained

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:  # else one of somebody's own, which a name must not lead to
            Backbone.known[cls.kind] = cls

    def __init__(self, source: str, classes: int) -> None:
        super().__init__()
        self.source, self.classes = source, classes
        self.pretrained = _loaded(self.kind, source)
        mean, deviation = (torch.tensor(values).view(1, -1, 1, 1) for values in _pixels(self.kind, source))
        self.register_buffer("mean", 2 * mean - 1, persistent=False)  # inputs lie in [-1, 1], not in [0, 1]
        self.register_buffer("deviation", 2 * deviation, persistent=False)

    @property
    def image_size(self) -> int | None:
        """The side of the images it takes; None: any."""
        return int(self.pretrained.config.image_size)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.frozen:
            self.pretrained.eval()  # some have dropout, which is no module with weights of its own
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `to` and its like do to every tensor; the shared weights are not moved but taken from where they lie."""
        walk: Callable[..., object] = super()._apply
        if not self.frozen:
            walk(fn, recurse)
            return self
        wanted = fn(next(self.pretrained.parameters()).new_empty(0))
        self.pretrained = nn.Identity()  # in the same place, so that the order of the tensors stays
        walk(fn, recurse)
        self.pretrained = _placed(self.kind, self.source, wanted.device, wanted.dtype)
        return self

    def pixels(self, inputs: Tensor) -> Tensor:
        channels = inputs.shape[1]
        if channels not in (1, 3):
            raise FairsiloError(
                f"the images have {channels} channels, and {self.kind}:{self.source} takes 3 (RGB), or 1 (grey)"
            )
        if channels == 1:
            inputs = inputs.expand(-1, 3, -1, -1)
        return (inputs - self.get_buffer("mean")) / self.get_buffer("deviation")

    def arithmetic(self, inputs: Tensor) -> torch.autocast:
        return torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.short_floats)

    def whole(self) -> nn.Module:
        """This network with everything trainable, on a copy of its own."""
        raise NotImplementedError


class VitNetwork(Backbone):
    """A vision transformer and a linear head on its class token."""

    kind = "vit"

    def __init__(self, source: str, classes: int) -> None:
        super().__init__(source, classes)
        self.width = int(self.pretrained.config.hidden_size)
        self.head = nn.Linear(self.width, classes)

    def token(self, inputs: Tensor, prompts: Tensor | None = None) -> Tensor:
        """The class token's output; prompts (n x d, or per image) are appended to the embedded patches."""
        with appended(self.pretrained.embeddings, prompts), self.arithmetic(inputs):
            out: Tensor = self.pretrained(self.pixels(inputs)).last_hidden_state[:, 0]
        return out.float() if self.short_floats else out

    def forward(self, inputs: Tensor) -> Output:
        features = self.token(inputs)
        return Output(self.head(features), features)

    def whole(self) -> nn.Module:
        self.pretrained, self.frozen = copy.deepcopy(self.pretrained).requires_grad_(True), False
        return self


class ResnetNetwork(Backbone):
    """A ResNet and a linear head on its pooled features."""

    kind = "resnet"

    def __init__(self, source: str, classes: int) -> None:
        super().__init__(source, classes)
        self.width = self.width_of(self.pretrained.config)
        self.head = nn.Linear(self.width, classes)

    @staticmethod
    def width_of(config: Any) -> int:
        return int(config.hidden_sizes[-1])

    @staticmethod
    def pooled(output: Any) -> Tensor:
        features: Tensor = output.pooler_output.flatten(1)
        return features

    @property
    def image_size(self) -> int | None:
        return None

    def forward(self, inputs: Tensor) -> Output:
        with self.arithmetic(inputs):
            features = self.pooled(self.pretrained(self.pixels(inputs)))
        features = features.float() if self.short_floats else features
        return Output(self.head(features), features)

    def whole(self) -> nn.Module:
        self.pretrained, self.frozen = copy.deepcopy(self.pretrained).requires_grad_(True), False
        return self


class EfficientnetNetwork(ResnetNetwork):
    """An EfficientNet and a linear head on its pooled features."""

    kind = "efficientnet"

    @staticmethod
    def width_of(config: Any) -> int:
        return int(config.hidden_dim)

    @staticmethod
    def pooled(output: Any) -> Tensor:
        # the pooling of `transformers` has a kernel as large as the features are many, which fails on large images
        features: Tensor = output.last_hidden_state.mean((2, 3))
        return features

    def whole(self) -> nn.Module:
        super().whole()
        for module in self.pretrained.modules():
            if isinstance(module, nn.BatchNorm2d) and module.momentum is not None and module.momentum > 0.5:
                module.momentum = 1 - module.momentum  # `transformers` gives torch TensorFlow's 0.99, the share kept
        return self


class ClipNetwork(Backbone):
    """CLIP's two encoders. By itself it classifies by the class prompts; parts put adapters and contexts around it."""

    kind = "clip"

    def __init__(self, source: str, classes: int) -> None:
        super().__init__(source, classes)
        self.width = int(self.pretrained.config.projection_dim)

    @property
    def image_size(self) -> int | None:
        return int(self.pretrained.config.vision_config.image_size)

    @property
    def scale(self) -> Tensor:
        """By which cosines are multiplied."""
        scale: Tensor = self.pretrained.logit_scale.exp().detach()
        return scale

    @property
    def text_width(self) -> int:
        return int(self.pretrained.config.text_config.hidden_size)

    def images(self, inputs: Tensor) -> Tensor:
        """Projected image features, not normalised."""
        with self.arithmetic(inputs):
            pooled = self.pretrained.vision_model(pixel_values=self.pixels(inputs)).pooler_output
            out: Tensor = self.pretrained.visual_projection(pooled)
        return out.float() if self.short_floats else out

    def tokens(self, texts: Sequence[str], context: int = 0) -> Tensor:
        """Token numbers, padded to one length; a text too long for the encoder is named.

        Before each text stand as many tokens as a context will take the place of.
        """
        tokenizer = _tokenizer(self.source)
        texts = [spaced(text) for text in texts]
        filled = [" ".join([*["x"] * context, text]) for text in texts]
        longest = int(self.pretrained.config.text_config.max_position_embeddings)
        for text, whole in zip(texts, filled, strict=True):
            length = len(tokenizer(whole)["input_ids"])
            if length > longest:
                behind = f" behind a context of {context}" if context else ""
                raise FairsiloError(
                    f"the prompt {text!r}{behind} has {length} tokens, and the text encoder takes at most {longest}"
                )
        found: Tensor = tokenizer(filled, padding=True, return_tensors="pt")["input_ids"]
        return found

    def encode(self, tokens: Tensor, context: Tensor | None = None) -> Tensor:
        """Projected text features; a context replaces the embedded tokens after the first."""
        tokens = tokens.to(self.scale.device)
        with self.arithmetic(tokens):
            out = self.read(tokens, context)
        return out.float() if self.short_floats else out

    def read(self, tokens: Tensor, context: Tensor | None = None) -> Tensor:
        """What the text encoder makes of tokens, in whatever arithmetic it is called in."""
        with context_after(1, self.pretrained.text_model.embeddings.token_embedding, context):
            pooled = self.pretrained.text_model(input_ids=tokens).pooler_output
        out: Tensor = self.pretrained.text_projection(pooled)
        return out

    @torch.no_grad()
    def prompts(self, classes: Sequence[str], template: str = TEMPLATE) -> Tensor:
        """Unit text features of the classes' prompts, a copy; they are computed once, always in float32."""
        texts, device = self.prompted(classes, template), self.scale.device
        if (self.source, texts, device) not in _class_features:
            _class_features[self.source, texts, device] = nn.functional.normalize(self.described(texts), dim=1)
        return _class_features[self.source, texts, device].clone()

    @staticmethod
    def prompted(classes: Sequence[str], template: str) -> tuple[str, ...]:
        if "{}" not in template:
            raise FairsiloError(f"the template {template!r} has no {{}} for the class")
        return tuple(template.format(name) for name in classes)

    @torch.no_grad()
    def described(self, texts: Sequence[str]) -> Tensor:
        """Projected text features, not normalised, in float32."""
        return self.read(self.tokens(texts).to(self.scale.device))

    def forward(self, inputs: Tensor) -> Output:
        raise FairsiloError("CLIP alone is not trained: compose the method with fedclip, promptfl or clip-zero-shot")

    def whole(self) -> nn.Module:
        raise FairsiloError("CLIP alone is not trained: compose the method with fedclip, promptfl or clip-zero-shot")


def spaced(text: str) -> str:
    """Classes are often named after folders: an underscore between two words (alarm_clock) is read as a space."""
    return re.sub(r"(?<=[^\W_])_+(?=[^\W_])", " ", text)


def similarities(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    """scale x cosine of image features with unit text features."""
    return scale * nn.functional.normalize(images, dim=1) @ texts.T


class PromptClassifier(nn.Module):
    """Classes by their prompts: for whatever trains inside CLIP's image encoder, on a copy of its own."""

    def __init__(self, clip: ClipNetwork, texts: Tensor, pretrained: nn.Module) -> None:
        super().__init__()
        self.clip, self.features_width = clip, clip.width
        self.clip.pretrained, self.clip.frozen = pretrained, False
        self.register_buffer("texts", texts, persistent=False)

    def forward(self, inputs: Tensor) -> Output:
        features = self.clip.images(inputs)
        return Output(similarities(features, self.get_buffer("texts"), self.clip.scale), features)
