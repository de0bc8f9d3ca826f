"""A diffusion model that draws labelled images in the style of a silo: Stable Diffusion, or the small one that comes
with fairsilo. Through `diffusers`, which is imported when it is needed.

A style is put into words, or it is one made-up word that the silo learns from its own images (textual inversion): the
word's embedding, a few dozen to a few hundred numbers, is all that leaves the silo for it.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairsilo.core import streams
from fairsilo.core.samples import Split
from fairsilo.errors import FairsiloError, nearest

SHIPPED = {"tiny": Path(__file__).resolve().parent.parent / "models" / "pretrained" / "tiny-diffusion"}
PHOTOGRAPHED = ("photo", "real", "product", "scan", "print", "street")  # domains that are photographs, not drawings
BATCH = 8  # images a call of the model, and prompts a step of learning a word
RATE = 0.5  # of Adam, times the spread of the words that the model knows: 0.1 leaves words too near where they begin
WORD = "<style>"
_LOADING = threading.Lock()  # what loads models sets torch's defaults for a moment, for all threads


@dataclass(frozen=True)
class Generator:
    """What stands after `diffusion:` in `data.synthetic`: MODEL;option=value;...

    Attributes:
        model: A folder, a name of the hub, or `tiny`: the one that comes with fairsilo, of 32 pixels and for digits.
        tokens: A folder with a textual inversion of each domain's style (domain.safetensors).
        learn: Steps that each silo spends on learning the word for its style; 0: styles are put into words.
        images: Of each class, that a silo may learn from.
        steps: Of the generation; None: as many as the model takes by itself.
        guidance: How closely images keep to their prompts; None: the model's own.
    """

    model: str
    tokens: Path | None = None
    learn: int = 0
    images: int = 10
    steps: int | None = None
    guidance: float | None = None

    @classmethod
    def of(cls, source: str) -> Generator:
        """Read what was written.

        Raises:
            FairsiloError: An option that there is not, or a value that it cannot have.
        """
        model, *options = (text.strip() for text in source.split(";"))
        given: dict[str, Any] = {}
        for option in filter(None, options):
            name, _, value = (text.strip() for text in option.partition("="))
            if name not in KINDS:
                raise FairsiloError(
                    f"data.synthetic has the option {option!r}{nearest(name, KINDS)}; after diffusion:MODEL may come "
                    f"{', '.join(f';{known}={shown}' for known, (_, shown) in KINDS.items())}"
                )
            try:
                given[name] = KINDS[name][0](value)
            except ValueError:
                raise FairsiloError(f"data.synthetic has {option!r}, and {value!r} is no number") from None
        found = cls(model, **given)
        if found.learn and found.tokens:
            raise FairsiloError("data.synthetic has both tokens=FOLDER and learn=STEPS; words are read or learned")
        if found.learn < 0 or found.images < 1 or (found.steps is not None and found.steps < 1):
            raise FairsiloError("data.synthetic: learn must be at least 0, images and steps at least 1")
        return found

    @property
    def place(self) -> str:
        return str(SHIPPED.get(self.model, self.model))

    @property
    def is_here(self) -> bool:
        """Whether it is a folder on this machine, so that nothing is fetched."""
        return Path(self.place).is_dir()

    @property
    def sizes(self) -> dict[str, Any]:
        """The settings of a call."""
        own: dict[str, Any] = {"num_inference_steps": 20, "guidance_scale": 3.0} if self.model in SHIPPED else {}
        given = {"num_inference_steps": self.steps, "guidance_scale": self.guidance}
        return own | {name: value for name, value in given.items() if value is not None}


KINDS: dict[str, tuple[Any, str]] = {
    "tokens": (Path, "FOLDER"),
    "learn": (int, "STEPS"),
    "images": (int, "COUNT"),
    "steps": (int, "COUNT"),
    "guidance": (float, "NUMBER"),
}


def prompt(domain: str, name: str, token: str | None = None) -> str:
    """The paper's two templates: a style put into words, or learned as a token by textual inversion."""
    if token is not None:
        return f"a {name} in {token} style"
    medium = "photograph" if any(word in domain.lower() for word in PHOTOGRAPHED) else "drawing"
    return f"a {medium} of {name} in {domain.replace('_', ' ').replace('-', ' ')} style"


def package() -> Any:
    """`diffusers`."""
    try:
        return importlib.import_module("diffusers")  # heavy, and needed for this alone
    except ImportError as problem:
        raise FairsiloError(
            "data.synthetic=diffusion:MODEL needs the package diffusers; install it with pip install 'fairsilo[synth]'"
        ) from problem


def load(generator: Generator, words: Mapping[str, Path | Tensor] | None = None) -> Any:
    """The model, with these words besides those it knows: name -> file, or embedding."""
    with _LOADING, _quiet():
        try:
            found = package().DiffusionPipeline.from_pretrained(
                generator.place, use_safetensors=True, torch_dtype=torch.float32
            )
        except (OSError, ValueError) as problem:
            reason = " ".join(str(problem).split())[:200]
            raise FairsiloError(f"the diffusion model {generator.model} cannot be loaded: {reason}") from problem
        pipeline = found.to("cuda" if torch.cuda.is_available() else "cpu")
        pipeline.set_progress_bar_config(disable=True)
        for word, given in (words or {}).items():
            try:
                kept = {word: given} if isinstance(given, Tensor) else str(given)
                pipeline.load_textual_inversion(kept, token=word, use_safetensors=True)
            except (RuntimeError, ValueError) as problem:
                raise FairsiloError(f"the word {word} is none of {generator.model}: {problem}") from problem
    return pipeline


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the bars and remarks of the packages that load and draw."""
    package().utils.logging.disable_progress_bar()
    bars = importlib.import_module("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if shown:
            bars.enable_progress_bar()


def drawn(
    pipeline: Any, generator: Generator, prompts: Sequence[str], seed: int, *purpose: int | str
) -> Iterator[Tensor]:
    """An image (1 x 3 x height x width, bytes) for each prompt, of the model's own size."""
    for start in range(0, len(prompts), BATCH):
        some = list(prompts[start : start + BATCH])
        # a stream for each image, so that batches do not matter
        draws = [streams.generator(seed, *purpose, number) for number in range(start, start + len(some))]
        with _quiet():
            images = pipeline(prompt=some, generator=draws, **generator.sizes).images
        for image in images:
            yield torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)[None]


# --------------------------------------------------------------------------------------------------- a word for a style
def learned_word(generator: Generator, split: Split, classes: Sequence[str], seed: int, *purpose: int | str) -> Tensor:
    """The embedding of one made-up word, under which the model draws images such as these; all else stays as it is.

    Args:
        generator: Whose `learn` says how many steps, and `images` how many of each class are looked at.
        split: Of a silo, labelled.
        classes: Their names.
        seed, purpose: Of the random numbers.
    """
    pipeline = load(generator)
    text, coder, net, noise = pipeline.text_encoder, pipeline.vae, pipeline.unet, _noise(pipeline)
    for module in (text, coder, net):
        module.requires_grad_(False).eval()
    device = next(net.parameters()).device
    targets = split.targets.cpu()
    chosen = _some_of_each(targets, generator.images, streams.generator(seed, *purpose, "chosen"))
    images, labels = _sized(split.take(chosen)[0], net, coder).to(device), targets[chosen].tolist()
    with torch.no_grad():
        codes = coder.encode(images).latent_dist.mode() * coder.config.scaling_factor
    known = text.get_input_embeddings().weight
    word = torch.nn.Parameter(known.mean(0).float())
    tokens, places = _with_gap(pipeline.tokenizer, [prompt("", classes[label], WORD) for label in labels], device)
    rate = RATE * float(known.std())
    optimiser = torch.optim.Adam([word], rate)
    stream = streams.generator(seed, *purpose, "steps")
    for step in range(generator.learn):
        for group in optimiser.param_groups:
            group["lr"] = rate * (1 - 0.9 * step / generator.learn)
        rows = torch.randint(len(codes), (2 * BATCH,), generator=stream)
        when = torch.randint(noise.config.num_train_timesteps, (len(rows),), generator=stream).to(device)
        drawn_noise = torch.randn((len(rows), *codes.shape[1:]), generator=stream).to(device)
        rows = rows.to(device)
        noisy = noise.add_noise(codes[rows], drawn_noise, when)
        guess = net(noisy, when, _said(text, tokens[rows], places[rows], word)).sample
        loss = F.mse_loss(guess.float(), _target(noise, codes[rows], drawn_noise, when))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return word.detach().cpu()


def _noise(pipeline: Any) -> Any:
    """How the model was taught to take noise away, whatever its sampler."""
    with _quiet():
        return package().DDPMScheduler.from_config(pipeline.scheduler.config)


def _target(noise: Any, codes: Tensor, drawn_noise: Tensor, when: Tensor) -> Tensor:
    if noise.config.prediction_type == "v_prediction":
        velocity: Tensor = noise.get_velocity(codes, drawn_noise, when)
        return velocity
    return drawn_noise


def _some_of_each(targets: Tensor, count: int, stream: torch.Generator) -> Tensor:
    order = torch.randperm(len(targets), generator=stream)
    return torch.cat([order[targets[order] == label][:count] for label in sorted(set(targets.tolist()))])


def _sized(images: Tensor, net: Any, coder: Any) -> Tensor:
    """Images between -1 and 1, RGB, of the size that the model draws."""
    side = net.config.sample_size * 2 ** (len(coder.config.block_out_channels) - 1)
    images = images.float().expand(-1, 3, -1, -1) if images.shape[1] == 1 else images.float()
    if images.shape[-1] != side or images.shape[-2] != side:
        images = F.interpolate(images, (side, side), mode="bilinear", antialias=True)
    return images / 127.5 - 1


def _with_gap(tokenizer: Any, prompts: list[str], device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens of prompts, and where the made-up word stands: one token there, which is looked up nowhere."""
    rows = []
    for text in prompts:
        before, _, after = text.partition(WORD)
        parts = [tokenizer(part.strip(), add_special_tokens=False).input_ids for part in (before, after)]
        rows.append([tokenizer.bos_token_id, *parts[0], -1, *parts[1], tokenizer.eos_token_id])
    length, end = tokenizer.model_max_length, tokenizer.pad_token_id
    table = torch.tensor([(row + [end] * length)[:length] for row in rows], device=device)
    return table.clamp_min(0), table == -1


def _said(text: Any, tokens: Tensor, places: Tensor, word: Tensor) -> Tensor:
    """What the text encoder makes of prompts with the word in its place."""
    embedding = text.get_input_embeddings()

    def put(_module: Any, _given: Any, found: Tensor) -> Tensor:
        return torch.where(places[..., None], word.to(found.dtype), found)

    handle = embedding.register_forward_hook(put)
    try:
        whole: Tensor = text(tokens)[0]
    finally:
        handle.remove()
    return whole
