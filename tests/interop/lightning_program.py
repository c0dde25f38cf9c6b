# SPDX-License-Identifier: Apache-2.0
"""A program of PyTorch Lightning that saves and leaves by ops/examples/torch/sdtrain_lightning.py. Each step has the same samples,
whatever number of ranks does it.

    lightning_program.py FOLDER STEPS EVERY BATCH
"""
import json
import os
import sys
import time

import torch
from lightning.pytorch import LightningModule, Trainer

from sdtrain_lightning import SdtrainCallback

FOLDER = sys.argv[1]
STEPS, EVERY, BATCH = map(int, sys.argv[2:])
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Numbers:
    """Lightning keeps the state of a loader that has one in its checkpoints. Of a loader without a length it takes a batch in advance,
    and the state would be behind that."""

    def __init__(self):
        self.step = 0

    def __iter__(self):
        while True:
            self.step += 1  # before the batch is used: a checkpoint goes on behind it
            yield torch.arange((self.step - 1) * BATCH + RANK, self.step * BATCH, WORLD)

    def __len__(self):
        return STEPS

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(4, 1).double()
        self.trace = open("%s/trace/g%s-r%d" % (FOLDER, os.environ.get("SDTRAIN_GENERATION", "0"), RANK), "w")

    def training_step(self, numbers, index):
        time.sleep(0.02)
        x = torch.sin(numbers.double()[:, None] * torch.arange(1, 5))
        loss = torch.nn.functional.mse_loss(self.layer(x), x.sum(1, keepdim=True))
        mean = self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean").item()
        self.trace.write(json.dumps({"step": self.trainer.global_step + 1, "samples": numbers.tolist(), "loss": mean}) + "\n")
        self.trace.flush()
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.05)


os.makedirs(FOLDER + "/trace", exist_ok=True)
callback = SdtrainCallback(FOLDER + "/checkpoints", every=EVERY)
trainer = Trainer(callbacks=[callback], num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)), strategy="ddp",
                  devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)), accelerator="cpu", max_steps=STEPS, logger=False,
                  enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False)
model = Model()
trainer.fit(model, Numbers(), ckpt_path=callback.checkpoint)
if RANK == 0 and trainer.global_step == STEPS:
    with open(FOLDER + "/weights", "w") as file:
        json.dump([p.flatten().tolist() for p in model.parameters()], file)
