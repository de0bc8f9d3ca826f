"""The next character of a text: the network of McMahan et al. (2017) and LEAF for Shakespeare's plays."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from fairsilo.core.output import Output
from fairsilo.fields import setting


@dataclass(frozen=True)
class CharLSTMSettings:
    vocabulary: int = setting(0, "how many characters texts consist of; 0: as many as there are classes", low=0)


_TENSORS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_TRITON = find_spec("triton") is not None


def _short_products(inputs: Tensor) -> bool:
    """Whether this is a step whose products may be short (tf32, bfloat16): what kernels launched once a layer take."""
    if not (_TRITON and inputs.is_cuda and torch.is_grad_enabled()):
        return False
    return torch.is_autocast_enabled("cuda") or torch.get_float32_matmul_precision() != "highest"


class CharLSTM(nn.Module):
    """Characters by number (int64, B x length), embedded in 8 dimensions; two LSTM layers, a head on the last state."""

    def __init__(self, classes: int, length: int = 80, vocabulary: int = 0, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary or classes, 8)
        self.lstm = nn.LSTM(8, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """The last hidden state of the upper layer."""
        embedded = self.embedding(inputs)
        if _short_products(embedded):
            return self._in_few_kernels(embedded)
        states: Tensor = self.lstm(embedded)[0]
        return states[:, -1]

    def _in_few_kernels(self, embedded: Tensor) -> Tensor:
        from fairsilo.models.lstm_kernels import Layer  # Triton comes with PyTorch's builds for GPUs alone

        states = embedded.transpose(0, 1)
        for layer in range(self.lstm.num_layers):
            weight, recurrent, *biases = (getattr(self.lstm, f"{kind}_l{layer}") for kind in _TENSORS)
            states = Layer.apply(states, weight, recurrent, sum(biases))  # type: ignore[no-untyped-call]
        return states[-1]

    def forward(self, inputs: Tensor) -> Output:
        features = self.features(inputs)
        return Output(self.head(features), features)
