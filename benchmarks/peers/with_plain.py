"""The floor: the job as a plain PyTorch loop, one process with two threads."""

from __future__ import annotations

import job
import torch


def main() -> None:
    torch.set_num_threads(2)
    clock, network = job.Clock(), job.network()
    start = {name: tensor.clone() for name, tensor in job.averaged(network).items()}
    for round_ in range(1, job.ROUNDS + 1):
        total = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
        for silo in range(job.SILOS):
            network.load_state_dict(start, strict=False)  # all but the counters of batches, which nothing reads
            samples = job.train(network, job.batches(silo, round_))
            for name, tensor in job.averaged(network).items():
                total[name].add_(tensor, alpha=samples / (job.SILOS * job.SAMPLES))
        start = total
        clock.round_ended()
    network.load_state_dict(start, strict=False)
    clock.report(job.accuracy(network))


if __name__ == "__main__":
    main()
