"""Training at the server, on data given to it."""

from __future__ import annotations

import torch
from torch import Tensor

from fairsilo.core.optimizers import Adam
from fairsilo.core.server import Server
from fairsilo.core.silo import inputs_for


def tuned(server: Server, start: Tensor, purpose: str, epochs: int, rate: float, batch_size: int) -> Tensor:
    """The model `start` after epochs of Adam on the server's data, shuffled by the stream of a purpose.

    The model is the server's own network where the method has one, else that of the silos.
    """
    assert server.network is not None
    assert server.data is not None
    assert server.task is not None
    model, data = server.own_model or server.network(), server.data
    model.load(start)
    model.train()
    optimizer = Adam([model.parameters], lr=rate, fused=True)
    for epoch in range(epochs):
        order = torch.randperm(len(data), generator=server.stream(purpose, epoch))
        for begin in range(0, len(data) - 1, batch_size):
            chosen = order[begin : begin + batch_size]
            inputs, targets = data.take(chosen)
            inputs = inputs_for(model, inputs)
            prediction = model.forward(inputs).prediction
            model.backward(server.task.loss(prediction, targets.to(inputs.device)))
            optimizer.step()
    return model.read()
