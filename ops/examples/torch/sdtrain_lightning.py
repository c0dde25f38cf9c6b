# SPDX-License-Identifier: Apache-2.0
"""A callback by which a program of PyTorch Lightning reports to sdtrain: its steps, its checkpoints, and that it leaves when asked to.

    callback = SdtrainCallback("/srv/checkpoints", every=1000)
    trainer = Trainer(callbacks=[callback], num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)),
                      devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)), strategy="ddp", enable_checkpointing=False)
    trainer.fit(model, loader, ckpt_path=callback.checkpoint)

The folder lies on a file system that all nodes share. Where sdtrain does not run the program the callback saves as well, and reports
nothing.
"""
import os
import shutil

import torch
from lightning.pytorch import Callback

import sdtrain


def sync(path):
    """Returns when a file, or all files of a folder, and their names are on the disk."""
    for folder, _, names in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), [], [os.path.basename(path)])]:
        for name in [*names, "."]:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


class SdtrainCallback(Callback):
    def __init__(self, folder, every=1000, keep=3):
        """Saves each `every` steps, when it leaves, and when a person asks for it. So many of the newest checkpoints stay."""
        self.folder, self.every, self.keep = folder, every, keep
        checkpoint = sdtrain.resume()
        self.checkpoint = checkpoint and checkpoint[0]  # for ckpt_path of fit()
        self.done = None  # optimizer steps

    def on_train_start(self, trainer, module):
        os.makedirs(self.folder, exist_ok=True)
        self.done = trainer.global_step
        sdtrain.stacks()
        sdtrain.ready()

    def on_train_batch_start(self, trainer, module, batch, index):
        sdtrain.stage("compute")

    def on_before_optimizer_step(self, trainer, module, optimizer):
        sdtrain.stage("collective")  # clipping and sharded optimizers wait for others

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.global_step == self.done:
            return  # gradients are accumulated
        self.done = trainer.global_step
        # Ranks are asked at different moments, so they agree on the step after which they save and leave.
        told = torch.tensor([float(sdtrain.leaving() is not None), float(sdtrain.save_requested())], device=module.device)
        leaves, saves = trainer.strategy.reduce(told, reduce_op="sum").tolist()
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        sdtrain.step(self.done, loss=None if loss is None else float(loss))
        if leaves or saves or self.done % self.every == 0:
            self.save(trainer, leaves)
        if leaves:
            trainer.should_stop = True
            trainer.limit_val_batches = 0  # no validation on the way out
        sdtrain.stage("data")

    def on_train_end(self, trainer, module):
        if sdtrain.leaving() is None:
            if self.done % self.every:
                self.save(trainer, True)
            sdtrain.finished()

    def save(self, trainer, last):
        sdtrain.stage("save")
        generation = os.environ.get("SDTRAIN_GENERATION", "0")
        path = os.path.join(self.folder, "step-%08d-g%s.ckpt" % (self.done, generation))
        trainer.save_checkpoint(path)  # Lightning's ranks wait for each other here
        if trainer.global_rank != 0:
            return
        sync(path)
        (sdtrain.checkpoint if last else sdtrain.register)(path, self.done)
        known = (sdtrain.committed() or 0) if sdtrain.active() else self.done  # a new start may get this one, or a later one
        names = sorted(name for name in os.listdir(self.folder) if name.startswith("step-"))
        old = [name for name in names if int(name[5:13]) <= known][:-self.keep]
        for name in [name for name in old if int(name[5:13]) not in sdtrain.held()]:  # an evaluation reads those
            whole = os.path.join(self.folder, name)
            shutil.rmtree(whole, ignore_errors=True) if os.path.isdir(whole) else os.remove(whole)
