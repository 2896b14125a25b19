"""Training steps in PyTorch with DTensor's tensor parallelism, the peer of the command beside it: for each number of seconds that it reads,
it trains for about that long and prints a line of JSON. With -sp, norms and residual streams have parts of the tokens."""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS, BATCH = 512, 128, 512, 4, 8, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        q, k, v = (y.view(BATCH, LENGTH, -1, WIDTH // HEADS).transpose(1, 2) for y in (self.q(x), self.k(x), self.v(x)))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, LENGTH, -1))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn, self.norm2, self.mlp = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH), MLP()

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, first, last):
        super().__init__()
        self.first, self.last = first, last  # of the positions that this rank has
        self.tok, self.pos = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[self.first:self.last]
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x)).flatten(0, 1)


def divide(model, mesh, sequence):
    """PyTorch's own recipe for a transformer."""
    between = Shard(1) if sequence else Replicate()
    enter = lambda: PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    parallelize_module(model, mesh, {
        "tok": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    } | ({"norm": SequenceParallel()} if sequence else {}))
    for b in model.blocks:
        plan = {"attn.q": ColwiseParallel(), "attn.k": ColwiseParallel(), "attn.v": ColwiseParallel(), "attn.out": RowwiseParallel(output_layouts=between),
                "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=between)}
        if sequence:
            plan |= {"norm1": SequenceParallel(), "norm2": SequenceParallel(), "attn": enter(), "mlp": enter()}
        parallelize_module(b, mesh, plan)


class Trainer:
    def __init__(self, o):
        torch.set_num_threads(o.threads)
        torch.set_flush_denormal(True)
        torch.manual_seed(0)
        part = LENGTH // o.ranks if o.sp else LENGTH
        first = o.rank * part if o.sp else 0
        self.o, self.net = o, GPT(first, first + part)
        if o.ranks > 1:
            divide(self.net, init_device_mesh("cpu", (o.ranks,)), o.sp)
        self.ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=o.ranks == 1)

    def step(self):
        self.opt.zero_grad()
        if self.o.ranks > 1:
            with loss_parallel():
                F.cross_entropy(self.net(self.ids), self.ids.flatten()).backward()
        else:
            F.cross_entropy(self.net(self.ids), self.ids.flatten()).backward()
        self.opt.step()

    def measure(self, seconds):
        start = time.perf_counter()
        self.step()
        self.step()
        n = torch.tensor(max(1, int(2 * seconds / (time.perf_counter() - start))))
        if self.o.ranks > 1:
            dist.broadcast(n, 0)
        start = time.perf_counter()
        for _ in range(int(n)):
            self.step()
        return {"steps_per_s": int(n) / (time.perf_counter() - start), "exposed": self.exposed(), "torch": torch.__version__}

    def exposed(self):
        """Returns which part of a step is spent in waiting for collectives."""
        if self.o.ranks == 1:
            return 0
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
            start = time.perf_counter()
            self.step()
            whole = time.perf_counter() - start
        return sum(e.self_cpu_time_total for e in p.key_averages() if "wait_tensor" in e.key) / 1e6 / whole


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-rank", type=int, default=0)
    p.add_argument("-ranks", type=int, default=1)
    p.add_argument("-threads", type=int, default=1)
    p.add_argument("-sp", action="store_true")
    o = p.parse_args()
    if o.ranks > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29000 + os.getppid() % 1000 + 2 * o.sp), "GLOO_SOCKET_IFNAME": "lo"}
        dist.init_process_group("gloo", rank=o.rank, world_size=o.ranks)
    t, told = Trainer(o), torch.zeros(1)
    while True:
        if o.rank == 0:
            told[0] = float(sys.stdin.readline() or 0)
        if o.ranks > 1:
            dist.broadcast(told, 0)
        if told[0] == 0:
            break
        result = t.measure(float(told[0]))
        if o.rank == 0:
            print(json.dumps(result), flush=True)
    if o.ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
