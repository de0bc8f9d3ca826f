"""The next character of a text: the network of McMahan et al. (2017) and LEAF for Shakespeare's plays."""

from __future__ import annotations

from torch import Tensor, nn

from fairsilo.core.output import Output


class CharLSTM(nn.Module):
    """Characters by number (int64, B x length), embedded in 8 dimensions; two LSTM layers, a head on the last state."""

    def __init__(self, classes: int, length: int = 80, vocabulary: int = 0, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary or classes, 8)
        self.lstm = nn.LSTM(8, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """The last hidden state of the upper layer."""
        states: Tensor = self.lstm(self.embedding(inputs))[0]
        return states[:, -1]

    def forward(self, inputs: Tensor) -> Output:
        features = self.features(inputs)
        return Output(self.head(features), features)
