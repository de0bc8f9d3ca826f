"""Backbones of a few thousand weights, written in the Hub's format: for tests of everything that stands on one."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from fairsilo.laws.tiny import enlarged

__all__ = ["enlarged", "write_clip", "write_efficientnet", "write_pixels", "write_resnet", "write_siglip", "write_vit"]


def write_clip(folder: Path, size: int = 8, layers: int = 2) -> Path:
    """A random CLIP for 8 x 8 images, with a tokenizer of single letters."""
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        symbols = [chr(code) for code in range(33, 127)]
        vocabulary = {symbol: number for number, symbol in enumerate([*symbols, *(f"{one}</w>" for one in symbols)])}
        for special in ("<|startoftext|>", "<|endoftext|>"):
            vocabulary[special] = len(vocabulary)
        start, end = vocabulary["<|startoftext|>"], vocabulary["<|endoftext|>"]
        numbers = {"bos_token_id": start, "eos_token_id": end, "pad_token_id": end}
        config = transformers.CLIPConfig(
            text_config={**shape, "vocab_size": len(vocabulary), "max_position_embeddings": 40, **numbers},
            vision_config={**shape, "num_hidden_layers": layers, "image_size": size, "patch_size": 4},
            projection_dim=12,
        )
        transformers.CLIPModel(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    special = dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>")
    special["bos_token"] = "<|startoftext|>"
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 40, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    return write_pixels(folder)


def write_siglip(folder: Path, size: int = 8) -> Path:
    """A random SigLIP for 8 x 8 images, with a tokenizer of single letters; its texts have 24 places."""
    import tokenizers
    import transformers

    vocabulary = {"<pad>": 0, "<unk>": 1} | {chr(code): code - 31 for code in range(33, 127)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = transformers.SiglipConfig(
            text_config={**shape, "vocab_size": len(vocabulary), "max_position_embeddings": 24, "projection_size": 16},
            vision_config={**shape, "image_size": size, "patch_size": 4},
        )
        transformers.SiglipModel(config).save_pretrained(folder)
    letters = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    letters.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="<pad>", unk_token="<unk>")
    made.save_pretrained(folder)
    return write_pixels(folder)


def write_pixels(folder: Path, mean: float = 0.5, deviation: float = 0.5) -> Path:
    """With 0.5 images stay in [-1, 1]."""
    settings = {"image_mean": 3 * [mean], "image_std": 3 * [deviation]}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


def write_vit(folder: Path, size: int = 8, dropout: float = 0.0) -> Path:
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = transformers.ViTConfig(**shape, image_size=size, patch_size=4, hidden_dropout_prob=dropout)
        transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    return write_pixels(folder)


def write_resnet(folder: Path) -> Path:
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        transformers.ResNetModel(config).save_pretrained(folder)
    return write_pixels(folder)


def write_efficientnet(folder: Path) -> Path:
    """One stage of two blocks, features of width 16."""
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.EfficientNetConfig(
            image_size=32,
            width_coefficient=0.0125,
            depth_coefficient=1.0,
            hidden_dim=16,
            kernel_sizes=[3],
            in_channels=[32],
            out_channels=[16],
            strides=[1],
            num_block_repeats=[2],
            expand_ratios=[1],
            depthwise_padding=[],
        )
        transformers.EfficientNetModel(config).save_pretrained(folder)
    return write_pixels(folder)
