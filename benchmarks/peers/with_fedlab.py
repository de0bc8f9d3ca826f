"""The job in FedLab, by its FedAvg.

python with_fedlab.py --processes 2    # a server and two processes of clients, one thread each ("cross-process")
python with_fedlab.py --processes 1    # one process with two threads ("standalone")
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import job
import torch
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.client.manager import PassiveClientManager
from fedlab.core.network import DistNetwork
from fedlab.core.server.manager import SynchronousServerManager
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Aggregators
from torch import Tensor, nn


class WithStatistics:
    """FedLab sends parameters alone; here the statistics of batch normalisation come with them."""

    _model: nn.Module

    @property
    def model_parameters(self) -> Tensor:
        return torch.cat([tensor.flatten() for tensor in job.averaged(self._model).values()])

    def set_model(self, parameters: Tensor, id: int | None = None) -> None:
        tensors = job.averaged(self._model).values()
        for tensor, values in zip(tensors, parameters.split([one.numel() for one in tensors]), strict=True):
            tensor.copy_(values.view_as(tensor))


class Silos(FedDataset):
    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[int] = Counter()

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Iterator[tuple[Tensor, Tensor]]:
        self.seen[id] += 1
        return job.batches(id, self.seen[id])


class Trainer(WithStatistics, FedAvgSerialClientTrainer):
    """FedLab's own loop has one optimiser for all rounds and silos, without momentum."""

    def train(self, model_parameters: Tensor, train_loader: Iterator[tuple[Tensor, Tensor]]) -> list[Tensor]:
        self.set_model(model_parameters)
        samples = job.train(self._model, train_loader)
        return [self.model_parameters, torch.tensor([float(samples)])]


class Server(WithStatistics, FedAvgServerHandler):
    """FedLab's own mean does not weight by samples."""

    clock = job.Clock()

    def global_update(self, buffer: list[list[Tensor]]) -> None:
        vectors, samples = zip(*buffer, strict=True)
        self.set_model(Aggregators.fedavg_aggregate(list(vectors), torch.cat(samples)))
        self.clock.round_ended()


class Standalone(StandalonePipeline):
    def evaluate(self) -> None:
        """Not between rounds."""


def trainer(silos: int) -> Trainer:
    made = Trainer(job.network(), silos)
    made.setup_dataset(Silos())
    made.setup_optim(1, job.BATCH, job.LR)
    return made


def connected(rank: int, port: int) -> DistNetwork:
    return DistNetwork(("127.0.0.1", str(port)), world_size=3, rank=rank)


def serve(server: Server) -> None:
    """Start the two processes of clients and run all rounds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--port", str(port), "--rank"]
    clients = [subprocess.Popen([*command, str(rank)], stdout=subprocess.DEVNULL) for rank in (1, 2)]
    SynchronousServerManager(connected(0, port), server, mode="GLOBAL").run()
    for one in clients:
        one.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(2 // given.processes)
    if given.rank:
        PassiveClientManager(connected(given.rank, given.port), trainer(job.SILOS // 2)).run()
        return
    server = Server(job.network(), job.ROUNDS, sample_ratio=1.0)
    if given.processes == 2:
        serve(server)
    else:
        Standalone(server, trainer(job.SILOS)).main()
    server.clock.report(job.accuracy(server.model), "fedlab")


if __name__ == "__main__":
    main()
