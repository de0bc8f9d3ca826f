"""Trains the small generator of synthetic digits: a real `StableDiffusionPipeline` of `diffusers`, of 32 pixels.

    sh pretraining/fetch_fonts.sh runs/fonts2 pretraining/generator_fonts.txt
    PYTHONPATH=src python pretraining/generator.py --fonts runs/fonts2 --bank runs/bank.pt
    PYTHONPATH=src python pretraining/generator.py --bank runs/bank.pt --out runs/tiny-diffusion --minutes 8

The first call draws the shapes of all figures once; the second trains on pictures that `artist.py` makes of them while
training runs: first the autoencoder, then text encoder and UNet together. In half of the captions the style is one
made-up word, whose embedding is a linear map (which is not kept) of the numbers that the picture was drawn by: so the
generator listens to a single word for a whole style, which is what textual inversion later looks for.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from artist import HAND, SIZE, TYPE, VOCABULARY, Artist, Style
from hands import WAYS
from shapes import font_files, font_shapes, written
from signs import write_tokenizer

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
BY_HAND = {
    "nanum-extra",
    "femkeklaver",
    "seto",
    "kouzan-mouhitsu",
    "aoyagi-kouzan-t",
    "aoyagi-soseki",
    "yusei-magic",
    "klee",
}
TEMPLATE = "a photo of a {} in the style of {}"
OTHERS = ("a {} in {} style", "a photo of {} in the style of {}", "a picture of a {} in {} style")
LENGTH = 16  # tokens of a caption
UNKNOWN = "domain"  # stands where the made-up word goes, and keeps its place in the text
STEPS = 1000  # of the noise


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


# ---------------------------------------------------------------------------------------------------------- the shapes
def draw_bank(fonts: Path, by_hand: int) -> dict[str, Tensor]:
    """Digits of all fonts, and of unsteady hands: shapes, labels, sources."""
    shapes, labels, sources = [], [], []
    for path in font_files(fonts):
        found = font_shapes((path, [str(digit) for digit in range(10)]))
        if any(shape is None for shape in found):
            continue  # a font whose figures are other signs
        shapes += found
        labels += range(10)
        sources += [HAND if path.parent.name in BY_HAND else TYPE] * 10
    say(f"{len(shapes) // 10} fonts")
    random = torch.Generator().manual_seed(0)
    for digit in range(10):
        ways = WAYS[str(digit)]
        for way in ways:
            drawn = written(way, by_hand // len(ways), random, torch.device("cpu"))
            shapes += list(drawn)
            labels += [digit] * len(drawn)
            sources += [HAND] * len(drawn)
    table = torch.from_numpy(np.stack([shape for shape in shapes if shape is not None]))
    return {"shapes": table, "labels": torch.tensor(labels), "sources": torch.tensor(sources)}


# ------------------------------------------------------------------------------------------------------------ captions
class Captions:
    """Captions as tokens, put together on the device: every word is one token, so that a row is a matter of places.

    Of ten pictures one has no caption; four or five have their style as the made-up word; the others have it in words,
    each of which is left out now and then, together with the template's end where none is left.
    """

    def __init__(self, tokenizer: Any, device: torch.device, seed: int) -> None:
        def tokens(text: str) -> list[int]:
            return list(tokenizer(text, add_special_tokens=False).input_ids)

        self.device = device
        self.random = torch.Generator(device).manual_seed(seed)
        self.start, self.end = tokenizer.bos_token_id, tokenizer.pad_token_id
        self.templates = [[tokens(part) for part in text.split("{}")] for text in (TEMPLATE, *OTHERS)]
        self.names = torch.tensor([[tokens(str(digit))[0], tokens(DIGITS[digit])[0]] for digit in range(10)]).to(device)
        self.words = torch.tensor([tokens(word)[0] for word in VOCABULARY], device=device)
        self.place = tokens(UNKNOWN)[0]

    def rand(self, *size: int) -> Tensor:
        return torch.rand(size, generator=self.random, device=self.device)

    def of(self, label: Tensor, style: Style) -> Tensor:
        count, luck = len(label), self.rand(len(label))
        name = self.names[label, (self.rand(count) < 0.2).long()]
        said = style.said() & (self.rand(count, len(self.words)) < 0.7)
        table = torch.full((count, LENGTH), self.end, device=self.device)
        which = torch.randint(len(self.templates), (count,), generator=self.random, device=self.device)
        which[self.rand(count) < 0.5] = 0
        for number, (before, middle, after) in enumerate(self.templates):
            rows = (which == number).nonzero().flatten()
            table[rows] = self.filled(before, middle, after, name[rows], said[rows], luck[rows])
        return torch.where((luck < 0.1)[:, None], self.blank(count), table)

    def blank(self, count: int) -> Tensor:
        table = torch.full((count, LENGTH), self.end, device=self.device)
        table[:, 0] = self.start
        return table

    def filled(
        self, before: list[int], middle: list[int], after: list[int], name: Tensor, said: Tensor, luck: Tensor
    ) -> Tensor:
        """One template with names and words; a column more than fits takes what is cut off."""
        count, unknown = len(name), luck < 0.55
        said = said & ~unknown[:, None]
        words = said.sum(1) + unknown.long()
        table = torch.full((count, LENGTH + 1), self.end, device=self.device)
        fixed = [self.start, *before]
        table[:, : len(fixed)] = torch.tensor(fixed, device=self.device)
        table[:, len(fixed)] = name
        place = len(fixed) + 1
        for token in middle:
            table[:, place] = torch.where(words > 0, token, self.end)
            place += 1
        columns = (place + said.cumsum(1) - 1).clamp(max=LENGTH)
        table.scatter_(1, torch.where(said, columns, LENGTH), self.words.expand(count, -1))
        table[unknown, place] = self.place
        for number, token in enumerate(after):
            column = (place + words + number).clamp(max=LENGTH)[:, None]
            table.scatter_(1, torch.where(words[:, None] > 0, column, LENGTH), token)
        return table[:, :LENGTH]


def vocabulary() -> list[str]:
    names = [*map(str, range(10)), *DIGITS]
    return [template.format(name, word) for template in (TEMPLATE, *OTHERS) for name in names
            for word in (*VOCABULARY, UNKNOWN)]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- modules
def modules(out: Path, width: tuple[int, int]) -> Any:
    """Tokenizer, text encoder, autoencoder and UNet, all new."""
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    size = write_tokenizer(out / "tokenizer", vocabulary())
    tokenizer = CLIPTokenizer.from_pretrained(out / "tokenizer")
    text = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=size, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=LENGTH, projection_dim=64, bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    tokenizer.model_max_length = LENGTH
    coder = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(16, 32), layers_per_block=1, latent_channels=4, norm_num_groups=8, sample_size=SIZE,
    )  # fmt: skip
    net = UNet2DConditionModel(
        sample_size=SIZE // 2, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=width,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=64, attention_head_dim=4, norm_num_groups=8,
    )  # fmt: skip
    return tokenizer, text, coder, net


def scheduler() -> Any:
    from diffusers import DPMSolverMultistepScheduler

    return DPMSolverMultistepScheduler(
        num_train_timesteps=STEPS, beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear",
        prediction_type="v_prediction", timestep_spacing="trailing", steps_offset=1,
    )  # fmt: skip


def train_coder(coder: Any, artist: Artist, until: float, batch: int) -> None:
    """Pictures to four numbers for every 2 x 2 pixels and back; a small pull towards a normal distribution."""
    optimiser = torch.optim.AdamW(coder.parameters(), 2e-3, weight_decay=1e-4)
    begun, step, error = time.monotonic(), 0, torch.zeros(())
    while (left := until - time.monotonic()) > 0:
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * min(1, step / 100) * max(0.02, left / (until - begun))
        images = artist.batch(batch)[0]
        with torch.autocast(artist.device.type, torch.bfloat16, enabled=artist.device.type == "cuda"):
            code = coder.encode(images).latent_dist
            back = coder.decode(code.sample()).sample
        error = F.mse_loss(back.float(), images)
        loss = error + 1e-5 * code.kl().mean() / 1024 + 0.1 * F.l1_loss(back.float(), images)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(coder.parameters(), 1.0)
        optimiser.step()
        step += 1
    say(f"autoencoder: {step} steps, {-10 * math.log10(float(error.detach()) / 4):.1f} dB")
    with torch.no_grad():
        codes = coder.encode(artist.batch(1024)[0]).latent_dist.mean
    coder.register_to_config(scaling_factor=round(1 / float(codes.std()), 4))


class Words(nn.Module):
    """The embedding of a made-up word from the numbers that a picture was drawn by."""

    def __init__(self, numbers: int, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(numbers, width)
        nn.init.normal_(self.map.weight, std=0.05)

    def forward(self, table: Tensor) -> Tensor:
        found: Tensor = self.map(2 * table - 1)
        return found


def said(text: Any, tokens: Tensor, words: Tensor, place: int) -> Tensor:
    """What the text encoder makes of captions, with the made-up word put where it stands."""
    embedding = text.get_input_embeddings()
    before = embedding(tokens)
    whole = torch.where((tokens == place)[..., None], words[:, None].to(before.dtype), before)
    handle = embedding.register_forward_hook(lambda *_: whole)  # the encoder looks its tokens up by itself
    try:
        found: Tensor = text(tokens)[0]
    finally:
        handle.remove()
    return found


def train_net(parts: Any, artist: Artist, until: float, batch: int) -> int:
    tokenizer, text, coder, net = parts
    captions = Captions(tokenizer, artist.device, 2)
    words = Words(artist.style(1).table().shape[1], 64).to(artist.device)
    trained = [*net.parameters(), *text.parameters(), *words.parameters()]
    optimiser = torch.optim.AdamW(trained, 1e-3, betas=(0.9, 0.99), weight_decay=1e-3)
    kept = [tensor.detach().clone() for tensor in trained]
    alphas = scheduler().alphas_cumprod.to(artist.device)
    noise = torch.Generator(artist.device).manual_seed(1)
    begun, step, sums = time.monotonic(), 0, 0.0
    while (left := until - time.monotonic()) > 0:
        rate = 1e-3 * min(1, step / 300) * min(1, max(0.01, 2 * left / (until - begun)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        images, label, style = artist.batch(batch)
        tokens = captions.of(label, style)
        with torch.no_grad(), torch.autocast(artist.device.type, torch.bfloat16, enabled=artist.device.type == "cuda"):
            codes = coder.encode(images).latent_dist.mode().float() * coder.config.scaling_factor
        when = torch.randint(STEPS, (batch,), generator=noise, device=artist.device)
        a, b = alphas[when].sqrt().reshape(-1, 1, 1, 1), (1 - alphas[when]).sqrt().reshape(-1, 1, 1, 1)
        drawn = torch.randn(codes.shape, generator=noise, device=artist.device)
        with torch.autocast(artist.device.type, torch.bfloat16, enabled=artist.device.type == "cuda"):
            told = said(text, tokens, words(style.table()), captions.place)
            guess = net(a * codes + b * drawn, when, told).sample
        loss = F.mse_loss(guess.float(), a * drawn - b * codes)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(kept, [tensor.detach() for tensor in trained], 1 - min(0.999, step / (step + 10)))
        step += 1
        if step % 100 == 0:
            sums = 0.9 * sums + 0.1 * float(loss) if sums else float(loss)
            if step % 1000 == 0:
                say(f"step {step}, loss {sums:.4f}")
    with torch.no_grad():
        for tensor, mean in zip(trained, kept, strict=True):
            tensor.copy_(mean)
    say(f"UNet and text encoder: {step} steps of {batch}")
    return step


# ----------------------------------------------------------------------------------------------------------- the result
def save(out: Path, parts: Any) -> Any:
    """As a pipeline folder, weights in half precision."""
    from diffusers import StableDiffusionPipeline

    tokenizer, text, coder, net = parts
    pipeline = StableDiffusionPipeline(
        vae=coder, text_encoder=text, tokenizer=tokenizer, unet=net, scheduler=scheduler(), safety_checker=None,
        feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    pipeline.to(torch.float16).save_pretrained(out, safe_serialization=True)
    return pipeline.to(torch.float32)


def sheet(pipeline: Any, artist: Artist, path: Path) -> None:
    """Six rows that the artist drew, then a row for each of some styles that the generator was asked for."""
    pipeline.set_progress_bar_config(disable=True)
    rows = [torch.cat(list(artist.batch(20)[0].cpu()), 2) for _ in range(6)]
    asked = ["handwritten light", "handwritten dark coloured cluttered", "typed light", "typed dark coloured crowded",
             "handwritten light outlined", "handwritten light coarse soft", "typed light striped"]  # fmt: skip
    for style in asked:
        prompts = [TEMPLATE.format(digit, style) for digit in range(10) for _ in range(2)]
        draws = [torch.Generator().manual_seed(number) for number in range(20)]
        found = pipeline(prompts, num_inference_steps=20, guidance_scale=3.0, generator=draws, output_type="pt").images
        rows.append(torch.cat(list(2 * found.float().cpu() - 1), 2))
    picture = ((torch.cat(rows, 1) + 1) * 127.5).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    Image.fromarray(picture).resize((picture.shape[1] * 2, picture.shape[0] * 2), Image.Resampling.NEAREST).save(path)


def weights(parts: Any) -> Iterator[str]:
    for name, part in zip(("text encoder", "autoencoder", "UNet"), parts[1:], strict=True):
        yield f"{name} {sum(tensor.numel() for tensor in part.parameters()) / 1e6:.2f} M"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fonts", type=Path, help="draw the bank from these fonts")
    parser.add_argument("--bank", type=Path, required=True)
    parser.add_argument("--by-hand", type=int, default=1000, help="drawings of each digit in strokes")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--width", type=int, nargs=2, default=(48, 80))
    parser.add_argument("--sheet", type=Path, help="only draw some pictures")
    chosen = parser.parse_args()
    if chosen.fonts:
        torch.save(draw_bank(chosen.fonts, chosen.by_hand), chosen.bank)
    bank = torch.load(chosen.bank, weights_only=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    artist = Artist(bank["shapes"], bank["labels"], bank["sources"], device)
    if chosen.sheet:
        rows = [torch.cat(list(artist.batch(24)[0].cpu()), 2) for _ in range(16)]
        picture = ((torch.cat(rows, 1) + 1) * 127.5).byte().permute(1, 2, 0).numpy()
        Image.fromarray(picture).resize((picture.shape[1] * 2, picture.shape[0] * 2), 0).save(chosen.sheet)
    if not chosen.out:
        return
    begun = time.monotonic()
    tokenizer, *nets = modules(chosen.out, tuple(chosen.width))
    nets = [net.to(device) for net in nets]
    parts = (tokenizer, *nets)
    say(", ".join(weights(parts)))
    train_coder(nets[1], artist, begun + 60 * chosen.minutes * 0.15, chosen.batch)
    nets[1].requires_grad_(False)
    steps = train_net(parts, artist, begun + 60 * chosen.minutes, chosen.batch)
    pipeline = save(chosen.out, parts)
    (chosen.out / "training.json").write_text(json.dumps({"steps": steps, "batch": chosen.batch}), encoding="utf-8")
    sheet(pipeline, artist, chosen.out / "sheet.png")
    say(f"{sum(path.stat().st_size for path in chosen.out.rglob('*') if path.is_file()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
