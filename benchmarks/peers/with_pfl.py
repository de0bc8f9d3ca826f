"""The job in pfl (Apple's pfl-research), by `FederatedAveraging` on a `SimulatedBackend`.

    python with_pfl.py --processes 2    # pfl divides the silos over two processes with one thread each
    python with_pfl.py --processes 1    # one process with two threads

Two processes find each other as pfl's documentation has it: by its environment variables.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from collections import Counter
from functools import partial

import job
import torch
import torch.nn.functional as F
from torch import Tensor

RANK, ADDRESSES = "PFL_WORKER_RANK", "PFL_WORKER_ADDRESSES"


def start_second() -> subprocess.Popen[bytes]:
    """Start the second process; must come before pfl is imported, which waits for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ[ADDRESSES] = f"127.0.0.1:{port},127.0.0.1:{port}"  # only the first is connected to
    os.environ[RANK] = "0"
    return subprocess.Popen([sys.executable, __file__, "--processes", "2"], env=os.environ | {RANK: "1"})


def run(clock: job.Clock) -> job.SmallCNN:
    """All rounds; returns the network."""
    import numpy as np
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Network(job.SmallCNN):
        def loss(self, images: Tensor, targets: Tensor) -> Tensor:
            self.train()
            return F.cross_entropy(self(images), targets)

        def metrics(self, images: Tensor, targets: Tensor) -> dict[str, object]:
            return {}  # pfl always evaluates in the first round; there is nothing to do then

    class Model(PyTorchModel):
        """pfl takes the mean of parameters alone; here the statistics of batch normalisation are among them."""

        @property
        def variable_map(self) -> dict[str, Tensor]:
            return {**super().variable_map, **statistics}

    class Rounds(TrainingProcessCallback):
        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: Model, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            clock.round_ended()
            return False, Metrics()

    seen: Counter[int] = Counter()

    def dataset(silo: int) -> PyTorchTensorDataset:
        """In the order of the round: pfl's data sets hand out batches in the order in which they lie."""
        seen[silo] += 1
        images, targets = job.silo(silo)
        shuffled = job.order(silo, seen[silo])
        return PyTorchTensorDataset((images[shuffled], targets[shuffled]), user_id=str(silo))

    np.random.seed(0)  # pfl draws seeds from it, which must be the same in both processes
    network = Network()
    network.load_state_dict(job.network().state_dict())
    statistics = {name: tensor for name, tensor in network.named_buffers() if tensor.is_floating_point()}
    averaged = [*network.parameters(), *statistics.values()]
    local = partial(torch.optim.SGD, momentum=job.MOMENTUM, weight_decay=job.WEIGHT_DECAY, fused=True)
    model = Model(network, local, torch.optim.SGD(averaged, lr=1.0))
    silos = FederatedDataset(dataset, get_user_sampler("minimize_reuse", list(range(job.SILOS))))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=job.ROUNDS,
            evaluation_frequency=job.ROUNDS + 1,
            train_cohort_size=job.SILOS,
            val_cohort_size=0,
        ),
        SimulatedBackend(silos, silos, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_batch_size=job.BATCH, local_num_epochs=1, local_learning_rate=job.LR),
        callbacks=[Rounds()],
        send_metrics_to_platform=False,
    )
    return network


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    processes = parser.parse_args().processes
    torch.set_num_threads(2 // processes)
    second = start_second() if processes == 2 and RANK not in os.environ else None
    clock = job.Clock()
    network = run(clock)
    if os.environ.get(RANK, "0") == "0":
        clock.report(job.accuracy(network), "pfl")
    if second is not None:
        second.wait()


if __name__ == "__main__":
    main()
