#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains diffusers' U-Net of Stable Diffusion v2 on latents of `sdprep encode`: as a job of kind "exec" of sdtrain, under torchrun, or
alone. Ranks without a GPU compute in fp32 and average gradients by gloo (DDP); ranks with one each shard the model, compute in bf16 and
use NCCL.

    torchrun --nproc-per-node 8 train.py --data /srv/latents --unet unet.json --checkpoints /srv/checkpoints --steps 100000

Each step has the same samples, noise and timesteps, whatever number of ranks computes it: mosaicml-streaming deals the samples of a
step by the global batch, and noise and timestep of a sample depend on its number in the dataset and on the step alone.

sdtrain.py is the one file that this script needs of sdtrain. Where sdtrain does not run the script, its calls do nothing.
"""
import argparse
import json
import os
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
from streaming import StreamingDataLoader, StreamingDataset
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import sdtrain

NEVER_RETRY, CHECKPOINT_DAMAGED = 78, 82  # exit codes that sdtrain understands


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="folder of `sdprep encode`, or its URI if --cache is given")
    p.add_argument("--cache", help="folder of this node into which the shards are downloaded")
    p.add_argument("--unet", required=True, help="config.json of the U-Net")
    p.add_argument("--checkpoints", required=True, help="folder for checkpoints, on a file system that all nodes share")
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--every", type=int, default=1000, help="steps between checkpoints")
    p.add_argument("--keep", type=int, default=3, help="so many of the newest checkpoints stay")
    p.add_argument("--global-batch", type=int, default=2048)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--warmup-steps", type=int, default=1000)
    p.add_argument("--seed", type=int, default=17)
    p.add_argument("--latent-scale", type=float, default=0.18215)
    p.add_argument("--canonical-nodes", type=int, default=12, help="a multiple of each number of nodes that may train")
    p.add_argument("--sharded", action="store_true", help="shard the model on CPUs, too")
    p.add_argument("--trace", help="folder into which each rank writes the samples of its steps")
    return p.parse_args()


class Latents(StreamingDataset):
    def __getitem__(self, number):
        sample = super().__getitem__(number)
        return number, torch.tensor(sample["latents"]).float(), torch.tensor(sample["text"]).float()


def loader_of(o, world):
    where = {"remote": o.data, "local": o.cache} if o.cache else {"local": o.data}
    batch = o.global_batch // world
    data = Latents(**where, batch_size=batch, shuffle=True, shuffle_seed=o.seed, num_canonical_nodes=o.canonical_nodes)
    return StreamingDataLoader(data, batch_size=batch, drop_last=True)


def distributed(model, on_gpu, sharded):
    if not sharded:
        return DistributedDataParallel(model)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if on_gpu else MixedPrecisionPolicy()
    for block in (*model.down_blocks, model.mid_block, *model.up_blocks):
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def draw(seed, step, numbers, shape):
    """Noise and timestep of each sample, on any number of ranks the same."""
    noise, times = [], []
    for number in numbers.tolist():
        g = torch.Generator().manual_seed((seed * 1000003 + step) % 2**31 * 2**32 + number)
        noise.append(torch.randn(shape, generator=g))
        times.append(torch.randint(1000, (), generator=g))
    return torch.stack(noise), torch.stack(times)


class Training:
    def __init__(self, o, device):
        self.o, self.device = o, device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.step = 0
        torch.manual_seed(o.seed)  # the same weights on each rank
        with open(o.unet) as file:
            unet = UNet2DConditionModel.from_config(json.load(file)).to(device)
        # The input's convolution is among the last to get a gradient: from then on this rank waits for the others.
        unet.conv_in.weight.register_post_accumulate_grad_hook(lambda _: sdtrain.stage("collective"))
        self.model = distributed(unet, device.type == "cuda", o.sharded or device.type == "cuda")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=o.lr, weight_decay=0.01)
        self.loader = loader_of(o, self.world)
        betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, device=device) ** 2
        self.signal = torch.cumprod(1 - betas, 0)
        self.trace = None
        if o.trace:
            os.makedirs(o.trace, exist_ok=True)
            self.trace = open(os.path.join(o.trace, "g%s-r%d" % (os.environ.get("SDTRAIN_GENERATION", "0"), self.rank)), "w")

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "data": self.loader.state_dict()}

    def restore(self, uri, step):
        state = self.state()
        try:
            dcp.load(state, checkpoint_id=uri)
        except (OSError, CheckpointException) as e:
            print("%s: %s" % (uri, e), file=sys.stderr)
            sys.exit(CHECKPOINT_DAMAGED)  # the next start gets the one before
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.loader.load_state_dict(state["data"])
        self.step = step

    def save(self, last):
        """Each rank writes its part. Rank 0 registers the checkpoint when all of it is durable, and waits only for the last one."""
        sdtrain.stage("save")
        generation = os.environ.get("SDTRAIN_GENERATION", "0")
        uri = os.path.join(self.o.checkpoints, "step-%08d-g%s" % (self.step, generation))
        dcp.save(self.state(), checkpoint_id=uri)
        if self.rank != 0:
            return
        (sdtrain.checkpoint if last else sdtrain.register)(uri, self.step)
        known = (sdtrain.committed() or 0) if sdtrain.active() else self.step  # a new start may get this one, or a later one
        names = sorted(name for name in os.listdir(self.o.checkpoints) if name.startswith("step-"))
        old = [name for name in names if int(name[5:13]) <= known][:-self.o.keep]
        for name in [name for name in old if int(name[5:13]) not in sdtrain.held()]:  # an evaluation reads those
            shutil.rmtree(os.path.join(self.o.checkpoints, name), ignore_errors=True)

    def train(self, numbers, latents, text):
        """One step. Returns the mean loss, and whether a rank was asked to leave, or to save."""
        sdtrain.stage("compute")
        noise, times = draw(self.o.seed, self.step, numbers, latents.shape[1:])
        noise, times = noise.to(self.device), times.to(self.device)
        latents, text = latents.to(self.device) * self.o.latent_scale, text.to(self.device)
        signal = self.signal[times].view(-1, 1, 1, 1)
        noisy = signal.sqrt() * latents + (1 - signal).sqrt() * noise
        velocity = signal.sqrt() * noise - (1 - signal).sqrt() * latents
        loss = torch.nn.functional.mse_loss(self.model(noisy, times, text).sample.float(), velocity)
        for group in self.optimizer.param_groups:
            group["lr"] = self.o.lr * min(1.0, (self.step + 1) / self.o.warmup_steps)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        # Ranks are asked to leave at different moments, so they agree on the step after which they leave.
        told = [loss.item() / self.world, sdtrain.leaving() is not None, sdtrain.save_requested()]
        told = torch.tensor(told, device=self.device)
        dist.all_reduce(told)
        mean, leaves, saves = told.tolist()
        if self.trace:
            self.trace.write(json.dumps({"step": self.step, "samples": numbers.tolist(), "loss": mean}) + "\n")
            self.trace.flush()
        sdtrain.step(self.step, loss=mean, lr=group["lr"], samples=self.step * self.o.global_batch)
        return mean, leaves > 0, saves > 0

    def run(self):
        while self.step < self.o.steps:
            for batch in self.loader:  # the rest of one pass over the data
                loss, leaves, saves = self.train(*batch)
                if self.rank == 0:
                    print("step %d loss %.6f" % (self.step, loss))
                ends = leaves or self.step == self.o.steps
                if ends or saves or self.step % self.o.every == 0:
                    self.save(ends)
                if ends:
                    return
                sdtrain.stage("data")


def main():
    o = parse()
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, value)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    if o.global_batch % dist.get_world_size():
        print("--global-batch %d is not a multiple of %d ranks" % (o.global_batch, dist.get_world_size()), file=sys.stderr)
        sys.exit(NEVER_RETRY)
    training = Training(o, torch.device("cuda" if on_gpu else "cpu"))
    checkpoint = sdtrain.resume()
    if checkpoint:
        training.restore(*checkpoint)
    sdtrain.ready()
    training.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
