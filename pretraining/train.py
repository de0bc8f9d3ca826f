"""Pretrain the tiny CLIP and the tiny ViT on rendered characters; see README.md beside this file."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from scenes import SIZE, Painter
from shapes import Bank, bank, figure_pieces, font_files, font_pieces, held_out, skeleton_pieces
from signs import BOS, DIGITS, EOS, POSITIONS, STYLES, Sign, captions, library, signs, write_tokenizer

LIMIT = 4_000_000  # bytes of both folders together
TEMPLATES = ("a photo of a {}", "a picture of a {}")
HEADLINE = "a photo of a {}, numerals"
PIXELS = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "rescale_factor": 1 / 255,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "size": {"height": SIZE, "width": SIZE},
}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# ---------------------------------------------------------------------------------------------------------- the models
class Tower(NamedTuple):
    """The shape of CLIP's image encoder."""

    width: int = 128
    layers: int = 4
    patch: int = 4


def new_clip(vocabulary: int, tower: Tower) -> Any:
    from transformers import CLIPConfig, CLIPModel

    text = {
        "vocab_size": vocabulary,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": POSITIONS,
        "projection_dim": 64,
        "bos_token_id": vocabulary - 2,
        "eos_token_id": vocabulary - 1,
        "pad_token_id": vocabulary - 1,
    }
    vision = {
        "hidden_size": tower.width,
        "intermediate_size": 3 * tower.width,
        "num_hidden_layers": tower.layers,
        "num_attention_heads": 4,
        "image_size": SIZE,
        "patch_size": tower.patch,
        "projection_dim": 64,
    }
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=64, logit_scale_init_value=math.log(10))
    return CLIPModel(config)


def new_vit() -> Any:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=SIZE,
        patch_size=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return ViTModel(config, add_pooling_layer=False)


def image_features(clip: Any, images: Tensor) -> Tensor:
    """Unit image features; written out, since what `get_image_features` returns differs between versions."""
    pooled = clip.vision_model(pixel_values=images).pooler_output
    return F.normalize(clip.visual_projection(pooled).float(), dim=1)


def text_features(clip: Any, tokens: Tensor) -> Tensor:
    pooled = clip.text_model(input_ids=tokens).pooler_output
    return F.normalize(clip.text_projection(pooled).float(), dim=1)


def vit_features(vit: Any, images: Tensor) -> Tensor:
    features: Tensor = vit(pixel_values=images).last_hidden_state[:, 0]
    return features


# ------------------------------------------------------------------------------------------------------------ captions
class Reader:
    """Draws captions as token rows, and says which images of a batch each of them describes."""

    def __init__(self, classes: list[Sign], tokenizer: Any, device: torch.device, seed: int) -> None:
        found = library(classes, tokenizer)
        self.tokens, self.lengths, self.covers, self.style, self.neutral, self.styled, self.filler = (
            torch.from_numpy(part).to(device) for part in found
        )
        self.random = torch.Generator(device).manual_seed(seed)
        self.device = device

    def _numbers(self, below: int, *size: int) -> Tensor:
        return torch.randint(below, size, generator=self.random, device=self.device)

    def draw(self, neutral: int = 3, styled: int = 2) -> Tensor:
        """So many captions of each class, as rows of the library."""
        classes = len(self.neutral)
        each = torch.arange(classes, device=self.device)[:, None]
        plain = self.neutral[each, self._numbers(self.neutral.shape[1], classes, neutral)]
        style = self._numbers(len(STYLES), classes, styled)
        fancy = self.styled[each, style, self._numbers(self.styled.shape[2], classes, styled)]
        return torch.cat([plain, fancy], 1).flatten()

    def written(self, rows: Tensor) -> Tensor:
        """Their tokens; before a third of them come filler words, as many as there is room for or fewer."""
        tokens, room = self.tokens[rows], POSITIONS - self.lengths[rows]
        share = torch.rand(len(rows), generator=self.random, device=self.device)
        shift = (share * (room + 1)).long() * (self._numbers(3, len(rows)) == 0)
        place = torch.arange(POSITIONS, device=self.device).expand(len(rows), -1)
        moved = tokens.gather(1, (place - shift[:, None]).clamp_min(0))
        words = self.filler[self._numbers(len(self.filler), len(rows), POSITIONS)]
        inside = (place >= 1) & (place <= shift[:, None])
        return torch.where(inside, words, torch.where(place == 0, tokens[:, :1], moved))

    def describes(self, rows: Tensor, labels: Tensor, styles: Tensor) -> Tensor:
        """Images x captions: true where class and, if the caption names one, style agree."""
        wanted = self.style[rows]
        return self.covers[rows][:, labels].T & ((wanted == -1) | (wanted == styles[:, None]))


def matching_loss(logits: Tensor, agree: Tensor) -> Tensor:
    """Cross entropy in both directions; the target is spread evenly over all that agree."""
    targets = agree.float()
    images = -(targets * logits.log_softmax(1)).sum(1) / targets.sum(1).clamp_min(1)
    described = targets.sum(0)
    texts = -(targets * logits.log_softmax(0)).sum(0) / described.clamp_min(1)
    return (images.mean() + texts.sum() / (described > 0).sum().clamp_min(1)) / 2


# ------------------------------------------------------------------------------------------------------------ training
@dataclass
class Recipe:
    batch: int
    minutes: float
    steps: int | None
    rate: float
    decay: float = 0.05
    warm: float = 0.04  # of the whole training
    tell: float = 5.0  # seconds between lines of the log


def optimiser(parameters: Iterator[tuple[str, nn.Parameter]], recipe: Recipe) -> torch.optim.AdamW:
    """Weight decay for matrices, none for biases, norms, embeddings of positions and the scale."""
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in parameters:
        groups[parameter.dim() >= 2 and "embedding" not in name].append(parameter)
    some = [{"params": groups[True], "weight_decay": recipe.decay}, {"params": groups[False], "weight_decay": 0.0}]
    return torch.optim.AdamW(some, lr=recipe.rate, betas=(0.9, 0.98))


def train(
    name: str,
    modules: nn.Module,
    painter: Painter,
    loss_of: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    recipe: Recipe,
) -> dict[str, float]:
    """Until the time or the steps are used up; the learning rate follows how much of them is gone."""
    device = painter.device
    optim = optimiser(modules.named_parameters(), recipe)
    modules.train()
    begin = told = time.monotonic()
    step, seconds = 0, recipe.minutes * 60
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    while True:
        gone = step / recipe.steps if recipe.steps else (time.monotonic() - begin) / seconds
        if gone >= 1:
            break
        rate = recipe.rate * min(gone / recipe.warm, 0.5 + 0.5 * math.cos(math.pi * gone))
        for group in optim.param_groups:
            group["lr"] = max(rate, recipe.rate * 1e-3)
        images, labels, styles = painter.batch(recipe.batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=kind == torch.bfloat16):
            loss, right = loss_of(images, labels, styles)
        optim.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
        optim.step()
        step += 1
        if time.monotonic() - told > recipe.tell or step == recipe.steps:
            told = time.monotonic()
            speed = step * recipe.batch / (told - begin)
            say(
                f"{name} {100 * gone:5.1f} %  step {step}  loss {loss.item():.3f}  digits right {right.item():.3f}"
                f"  {speed:,.0f} images/s  {told - begin:.0f} s"
            )
    spent = time.monotonic() - begin
    modules.eval()
    return {"steps": step, "images": step * recipe.batch, "seconds": round(spent, 1)}


def train_clip(
    folder: Path, classes: list[Sign], painter: Painter, recipe: Recipe, seed: int, fast: bool, tower: Tower
) -> Any:
    from transformers import AutoTokenizer

    vocabulary = write_tokenizer(folder, [caption.text for some in captions(classes) for caption in some])
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    assert tokenizer(BOS[:0])["input_ids"] == [vocabulary - 2, vocabulary - 1], (BOS, EOS)
    clip = new_clip(vocabulary, tower).to(painter.device)
    reader = Reader(classes, tokenizer, painter.device, seed)
    prompts = torch.tensor([_padded(tokenizer(TEMPLATES[0].format(n))["input_ids"]) for n in range(10)])
    prompts = prompts.to(painter.device)
    see = torch.compile(image_features) if fast else image_features

    def loss_of(images: Tensor, labels: Tensor, styles: Tensor) -> tuple[Tensor, Tensor]:
        rows = reader.draw()
        seen = see(clip, images)
        read = text_features(clip, torch.cat([reader.written(rows), prompts]))
        scale = clip.logit_scale.float().clamp(max=math.log(60)).exp()
        with torch.autocast(painter.device.type, enabled=False):
            logits = scale * seen @ read.T
            digits = labels < 10
            named = logits.detach()[:, len(rows) :].argmax(1) == labels
            right = (named & digits).sum() / digits.sum()
            return matching_loss(logits[:, : len(rows)], reader.describes(rows, labels, styles)), right

    done = train("clip", clip, painter, loss_of, recipe)
    with torch.no_grad():
        clip.logit_scale.clamp_(max=math.log(60))
    return clip, done


def train_vit(classes: list[Sign], painter: Painter, recipe: Recipe, fast: bool) -> Any:
    vit, head = new_vit(), nn.Linear(96, len(classes))
    both = nn.ModuleDict({"vit": vit, "head": head}).to(painter.device)
    see = torch.compile(vit_features) if fast else vit_features

    def loss_of(images: Tensor, labels: Tensor, styles: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(see(vit, images)).float()
        digits = labels < 10
        right = ((logits.detach()[:, :10].argmax(1) == labels) & digits).sum() / digits.sum()
        return F.cross_entropy(logits, labels, label_smoothing=0.05), right

    done = train("vit", both, painter, loss_of, recipe)
    return vit, head, done


def _padded(tokens: list[int]) -> list[int]:
    return tokens + [tokens[-1]] * (POSITIONS - len(tokens))


def save(model: Any, folder: Path) -> None:
    """In half precision; loading with `dtype=torch.float32` (`torch_dtype` in transformers 4) widens it again."""
    model.to("cpu").half().save_pretrained(str(folder), safe_serialization=True)
    (folder / "model.safetensors").chmod(0o644)  # written for its owner only
    (folder / "preprocessor_config.json").write_text(json.dumps(PIXELS, indent=1) + "\n", encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------- evaluation
@torch.no_grad()
def class_texts(clip: Any, tokenizer: Any, template: str, names: list[str], device: torch.device) -> Tensor:
    tokens = torch.tensor([_padded(tokenizer(template.format(name))["input_ids"]) for name in names])
    return text_features(clip, tokens.to(device))


def wordings() -> dict[str, tuple[str, list[str]]]:
    """Headings of the numbers: template and class names."""
    names = {"numerals": [str(n) for n in range(10)], "words": list(DIGITS)}
    return {f"{template}, {kind}": (template, some) for template in TEMPLATES for kind, some in names.items()}


@torch.no_grad()
def digit_scores(
    clip: Any, tokenizer: Any, vit: Any, head: nn.Module | None, images: Tensor, labels: Tensor
) -> dict[str, dict[str, float]]:
    """Share of digits named right, of the ten, per model and wording."""
    device = labels.device
    blocks = images.split(512)
    scores: dict[str, dict[str, float]] = {"clip": {}, "vit": {}}
    if clip is not None:
        seen = torch.cat([image_features(clip, block.to(device)) for block in blocks])
        for heading, (template, names) in wordings().items():
            found = (seen @ class_texts(clip, tokenizer, template, names, device).T).argmax(1)
            scores["clip"][heading] = round((found == labels).float().mean().item(), 4)
    if vit is not None and head is not None:
        logits = torch.cat([head(vit_features(vit, block.to(device))) for block in blocks])
        scores["vit"]["own head, ten digits"] = round((logits[:, :10].argmax(1) == labels).float().mean().item(), 4)
    return scores


def held_out_scores(models: tuple[Any, Any, Any, Any], unseen: Bank, device: torch.device, count: int) -> Any:
    """On digits in fonts (and written by skeletons of another seed) that were not trained on, per style."""
    painter = Painter(unseen, device, seed=10_007, digits_only=True)
    scores = {}
    for style in STYLES:
        images, labels = painter.styled(style, count)
        scores[style] = digit_scores(*models, images, labels)
    return scores


def glyphs_scores(models: tuple[Any, Any, Any, Any], device: torch.device) -> Any:
    """On the embedded federation, read here for the first time, after training is over and the weights are saved."""
    from fairsilo.data.glyphs import DOMAINS, glyphs

    data = glyphs(seed=0, size=SIZE, per_domain=1000)
    scores: dict[str, Any] = {}
    for domain in DOMAINS:
        images = data.domains[domain].inputs.float() / 127.5 - 1
        scores[domain] = digit_scores(*models, images, data.domains[domain].targets.to(device))
    return scores


def averaged(scores: dict[str, Any], model: str, heading: str) -> float:
    values = [found[model][heading] for found in scores.values() if heading in found[model]]
    return round(sum(values) / len(values), 4) if values else math.nan


def weigh(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def evaluate(out: Path, classes: list[Sign], unseen: Bank, device: torch.device, glyphs: bool, count: int) -> Any:
    """Numbers of the saved weights, loaded again as a user would; the ViT's head is kept beside them for this only."""
    from transformers import AutoTokenizer, CLIPModel, ViTModel

    clip = tokenizer = vit = head = None
    if (out / "tiny-clip" / "model.safetensors").exists():
        clip = CLIPModel.from_pretrained(str(out / "tiny-clip")).float().to(device).eval()
        tokenizer = AutoTokenizer.from_pretrained(str(out / "tiny-clip"))
    kept = out / "head.pt"
    if (out / "tiny-vit" / "model.safetensors").exists() and kept.exists():
        vit = ViTModel.from_pretrained(str(out / "tiny-vit"), add_pooling_layer=False).float().to(device).eval()
        head = nn.Linear(96, len(classes))
        head.load_state_dict(torch.load(kept, weights_only=True))
        head = head.to(device)
    models = (clip, tokenizer, vit, head)
    found: dict[str, Any] = {"held_out": held_out_scores(models, unseen, device, count)}
    if glyphs:
        found["glyphs"] = glyphs_scores(models, device)
        found["glyphs_mean"] = {
            "clip": {heading: averaged(found["glyphs"], "clip", heading) for heading in wordings()},
            "vit": averaged(found["glyphs"], "vit", "own head, ten digits"),
        }
    return found


# ---------------------------------------------------------------------------------------------------------- model card
def card(numbers: dict[str, Any]) -> str:
    def table(scores: dict[str, Any], first: str) -> list[str]:
        heads = [("clip", heading) for heading in wordings()] + [("vit", "own head, ten digits")]
        lines = ["| " + " | ".join([first, *(f"{model}: {heading}" for model, heading in heads)]) + " |"]
        lines.append("|" + " --- |" * (len(heads) + 1))
        rows: list[tuple[str, Any]] = list(scores.items())
        mean = [averaged(scores, model, heading) for model, heading in heads]
        for name, found in rows:
            cells = [found[model].get(heading, math.nan) for model, heading in heads]
            lines.append("| " + " | ".join([name, *(f"{100 * cell:.1f} %" for cell in cells)]) + " |")
        return [*lines, "| " + " | ".join(["**mean**", *(f"{100 * cell:.1f} %" for cell in mean)]) + " |"]

    def training(model: str) -> str:
        done = numbers["training"].get(model)
        if not done:
            return "not trained in this run"
        return f"{done['steps']:,} steps, {done['images']:,} images, {done['seconds'] / 60:.1f} minutes"

    glyphs = table(numbers["glyphs"], "domain") if "glyphs" in numbers else ["Not evaluated in this run."]
    return "\n".join(
        [
            "---",
            "license: apache-2.0",
            "tags: [clip, vit, tiny, synthetic]",
            "---",
            "",
            "# tiny-clip and tiny-vit",
            "",
            "Two very small backbones for fairsilo's examples and tests, trained from nothing on rendered",
            "characters. They let methods that need a pretrained CLIP or ViT run offline and on a CPU; they are not",
            "general models.",
            "",
            "- **tiny-clip**: `CLIPModel`; images 32 x 32 in patches of 4, vision tower 4 layers of width 128, text",
            f"  tower 2 layers of width 128, {POSITIONS} positions, projection to 64; own byte pair vocabulary.",
            "- **tiny-vit**: `ViTModel` without pooling layer; 4 layers of width 96; use the class token.",
            "",
            "Images are RGB scaled to [-1, 1] (`x / 127.5 - 1`). Weights are stored in half precision; load them with",
            "`dtype=torch.float32` (`torch_dtype` in transformers 4).",
            "",
            "## Training data",
            "",
            f"{numbers['classes']} classes (digits, letters, symbols, simple figures), drawn without end: characters",
            f"of {numbers['fonts']} fonts, handwriting from stroke skeletons with jittered points, and polygons; five",
            "ways of drawing (writing on paper, pencil sketch, print, sign, painted over a scene) with random",
            "distortions, generated backgrounds, light and camera faults. Apart from the fonts nothing made by others",
            "was used. Captions come from templates and hold numerals as well as words. The code is in `pretraining/`",
            "of the fairsilo source.",
            "",
            "**What was kept out**: everything that the embedded federation `glyphs` is made of: its fonts (DejaVu,",
            "STIX, Computer Modern, and fonts derived from or nearly equal to them), scikit-learn's digits and",
            "photographs, and its rendering code. No `glyphs` image was used for training or for choosing anything;",
            "they are read after training, for the table below.",
            "",
            "**What was known**: whoever wrote the recipe knew `glyphs`. The subject (digits) and the kinds of",
            "picture (paper, sketches, print, signs, busy backgrounds) are alike on purpose, and writing seen with",
            "8 to 14 pixels was included because the scans in `glyphs` are that coarse. So the zero-shot numbers are",
            "those of a backbone made for this subject, not of one that has never heard of it.",
            "",
            "## How trained",
            "",
            f"- tiny-clip: {training('clip')}. Contrastive in both directions; all captions that are true of an image",
            "  (same character and, if the caption names one, same style) count as its matches.",
            f"- tiny-vit: {training('vit')}. Cross entropy over the classes; the head is not shipped.",
            "- AdamW, warm-up and cosine decay; no early stopping, no choice among checkpoints.",
            f"- Machine: {numbers['machine']}; seed {numbers['seed']}.",
            "",
            "## Numbers",
            "",
            "Digits named right among the ten. Held-out fonts (and skeleton writing of another seed), by style:",
            "",
            *table(numbers["held_out"], "style"),
            "",
            "Zero-shot on `glyphs` (all 1,000 images of each domain; the ViT by its own, unshipped head):",
            "",
            *glyphs,
            "",
            "## Intended use and limits",
            "",
            "Examples, tests and method development on small images of characters. Anything else (natural",
            "photographs, other scripts, safety-relevant reading of numbers) is out of scope. Results with these",
            "backbones say nothing about large pretrained models.",
            "",
            "## Licence",
            "",
            "Apache-2.0. The fonts are not contained in the weights or shipped with them.",
            "",
        ]
    )


# ---------------------------------------------------------------------------------------------------------------- main
def banks(folder: Path, classes: list[Sign], settings: argparse.Namespace, device: torch.device) -> Any:
    """The bank to train on, the one to test on, and how many fonts each has."""
    files = font_files(folder)
    if settings.max_fonts:
        files = files[:: max(1, len(files) // settings.max_fonts)]
    seen, unseen = [path for path in files if not held_out(path)], [path for path in files if held_out(path)]
    begin = time.monotonic()
    each = settings.skeletons
    # Fonts first: their processes are forked, which is safe only while the GPU is untouched.
    pieces, other = (font_pieces(some, classes, settings.workers) for some in (seen, unseen))
    at_once = 256 if device.type == "cuda" else 64
    pieces += skeleton_pieces(classes, each, settings.seed, device, at_once)
    pieces += figure_pieces(classes, max(4, each // 20), settings.seed)
    other += skeleton_pieces(classes[:10], max(20, each // 10), settings.seed + 1, device, at_once)
    trained = bank(pieces, len(classes))
    tested = bank([piece for piece in other if piece[1] < 10], 10)
    spent = time.monotonic() - begin
    say(f"bank: {len(seen)} fonts, {len(unseen)} held out, {len(trained.shapes):,} shapes, {spent:.1f} s")
    return trained, tested, (len(seen), len(unseen))


def contact_sheet(painter: Painter, path: Path, across: int = 40, rows: int = 3) -> None:
    """A picture of samples: rows per style, sorted by class."""
    strips = []
    for style in STYLES:
        images, labels = painter.styled(style, across * rows)
        images = images[labels.argsort(stable=True)]
        strips += [torch.cat(list(some), 2) for some in images.split(across)]
    sheet = ((torch.cat(strips, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(sheet).resize((sheet.shape[1] * 2, sheet.shape[0] * 2), Image.Resampling.NEAREST).save(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--fonts", type=Path, required=True, help="folder of TTF and OTF files, one subfolder per family or maker")
    add("--out", type=Path, help="where tiny-clip, tiny-vit and README.md are written")
    add("--model", choices=("both", "clip", "vit"), default="both")
    add("--clip-minutes", type=float, default=5.0)
    add("--clip-vision", type=int, nargs=3, metavar=Tower._fields, default=Tower(), help="CLIP's image encoder")
    add("--vit-minutes", type=float, default=2.0)
    add("--minutes", type=float, help="minutes for the model named by --model, or for each of both")
    add("--steps", type=int, help="train for so many steps instead of minutes")
    add("--batch", type=int, default=2048)
    add("--clip-rate", type=float, default=1.5e-3, help="highest learning rate")
    add("--vit-rate", type=float, default=1.5e-3)
    add("--seed", type=int, default=0)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--workers", type=int, default=min(16, os.cpu_count() or 1), help="processes that draw fonts")
    add("--skeletons", type=int, default=4000, help="drawings of each digit from skeletons")
    add("--max-fonts", type=int, help="use about so many fonts only (for trials)")
    add("--eval-count", type=int, default=4000, help="images per style for the held-out fonts")
    add("--compile", action="store_true", help="torch.compile the vision towers")
    add("--sheet", type=Path, help="write a PNG of samples")
    add("--no-glyphs", action="store_true", help="leave out the evaluation on glyphs (for trials)")
    add("--evaluate-only", action="store_true", help="of weights that are already in --out")
    settings = parser.parse_args(arguments)
    device = torch.device(settings.device)
    torch.manual_seed(settings.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    classes = signs()
    trained, tested, fonts = banks(settings.fonts, classes, settings, device)
    painter = Painter(trained, device, settings.seed)
    if settings.sheet:
        contact_sheet(Painter(trained, device, settings.seed + 1), settings.sheet)
    if settings.out is None:
        return 0
    out: Path = settings.out
    out.mkdir(parents=True, exist_ok=True)
    note = out / "numbers.json"
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine() + " CPU"
    numbers: dict[str, Any] = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {"training": {}}
    if not settings.evaluate_only:
        numbers |= {"classes": len(classes), "fonts": fonts[0], "fonts_held_out": fonts[1]}
        numbers |= {"machine": machine, "seed": settings.seed}
        for model in ("clip", "vit") if settings.model == "both" else (settings.model,):
            numbers["training"][model] = run(model, out, classes, painter, settings)
    numbers |= evaluate(out, classes, tested, device, not settings.no_glyphs, settings.eval_count)
    numbers["bytes"] = {name: weigh(out / name) for name in ("tiny-clip", "tiny-vit") if (out / name).exists()}
    numbers["bytes"]["together"] = sum(numbers["bytes"].values())
    note.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    (out / "README.md").write_text(card(numbers), encoding="utf-8")
    say(json.dumps(numbers, indent=1))
    if numbers["bytes"]["together"] > LIMIT:
        say(f"too large: {numbers['bytes']['together']:,} bytes, the limit is {LIMIT:,}")
        return 1
    return 0


def run(model: str, out: Path, classes: list[Sign], painter: Painter, settings: argparse.Namespace) -> dict[str, float]:
    """Train one model and save it."""
    torch.manual_seed(settings.seed)
    minutes = settings.minutes or (settings.clip_minutes if model == "clip" else settings.vit_minutes)
    rate = settings.clip_rate if model == "clip" else settings.vit_rate
    recipe = Recipe(settings.batch, minutes, settings.steps, rate)
    folder = out / f"tiny-{model}"
    done: dict[str, float]
    if model == "clip":
        tower = Tower(*settings.clip_vision)
        clip, done = train_clip(folder, classes, painter, recipe, settings.seed, settings.compile, tower)
        save(clip, folder)
    else:
        vit, head, done = train_vit(classes, painter, recipe, settings.compile)
        save(vit, folder)
        torch.save(head.to("cpu").state_dict(), out / "head.pt")
    return done


if __name__ == "__main__":
    sys.exit(main())
