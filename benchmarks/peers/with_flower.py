"""The job in Flower, by `run_simulation`: Ray with two client actors, one core each."""

from __future__ import annotations

import job
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    network = job.SmallCNN()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    silo, round_ = int(context.node_config["partition-id"]), int(message.content["config"]["server-round"])
    samples = job.train(network, job.batches(silo, round_))
    content = {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": samples})}
    return Message(RecordDict(content), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    clock = job.Clock()

    def after_round(round_: int, arrays: ArrayRecord) -> None:
        if round_:  # 0: before the first
            clock.round_ended()

    result = FedAvg(fraction_evaluate=0.0, min_train_nodes=job.SILOS, min_available_nodes=job.SILOS).start(
        grid, ArrayRecord(job.network().state_dict()), num_rounds=job.ROUNDS, evaluate_fn=after_round
    )
    network = job.SmallCNN()
    network.load_state_dict(result.arrays.to_torch_state_dict())
    clock.report(job.accuracy(network), "flwr", "ray")


if __name__ == "__main__":
    run_simulation(
        server,
        client,
        num_supernodes=job.SILOS,
        backend_config={"init_args": {"num_cpus": 2}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
