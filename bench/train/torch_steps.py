"""Training steps in PyTorch, the peer of the command beside it: for each number of seconds that it reads, it trains
for about that long and prints a line of JSON.

Batches lie in memory, optimizers are the fused ones, attention is scaled_dot_product_attention, and denormals are flushed
(without that AdamW slows down many times): the fastest PyTorch that a user gets without changing the model.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS, POOL = 512, 128, 256, 4, 4, 50


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Trainer:
    def __init__(self, o):
        torch.set_num_threads(o.threads)
        torch.set_flush_denormal(True)
        torch.manual_seed(0)
        if o.model == "mlp":
            net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        else:
            net = GPT()
        params = list(net.parameters())
        self.ranks = o.ranks
        if o.ranks > 1:
            net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
        torch.manual_seed(o.rank + 1)
        if o.model == "mlp":
            self.x, self.y = torch.rand(POOL, o.batch, 784), torch.randint(0, 10, (POOL, o.batch))
        else:
            self.x = torch.randint(0, VOCABULARY, (POOL, o.batch, LENGTH))
            self.y = torch.randint(0, VOCABULARY, (POOL, o.batch * LENGTH))
        if o.optim == "sgd":
            self.opt = torch.optim.SGD(params, lr=0.01, fused=True)
        else:
            self.opt = torch.optim.AdamW(params, lr=1e-3, fused=True)
        half = o.dtype == "bfloat16"

        def loss(x, y):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                return F.cross_entropy(net(x), y)

        self.loss = loss
        if o.compile:
            self.loss = torch.compile(self.loss)
        self.next = 0

    def steps(self, n):
        for _ in range(n):
            self.opt.zero_grad(set_to_none=self.ranks == 1)
            loss = self.loss(self.x[self.next], self.y[self.next])
            loss.backward()
            self.opt.step()
            self.next = (self.next + 1) % POOL
        return loss.item()

    def measure(self, seconds):
        start = time.perf_counter()
        self.steps(8)
        n = torch.tensor(int(8 * seconds / (time.perf_counter() - start)) + 1)
        if self.ranks > 1:
            dist.broadcast(n, 0)
        n = int(n)
        self.steps(max(1, n // 5))
        if self.ranks > 1:
            dist.barrier()
        start = time.perf_counter()
        loss = self.steps(n)
        if self.ranks > 1:
            dist.barrier()
        return {"steps_per_s": n / (time.perf_counter() - start), "loss": loss, "torch": torch.__version__}


def orders(o):
    """Yields the seconds of each measurement: rank 0 reads them and tells the others."""
    told = torch.zeros(1)
    while True:
        if o.rank == 0:
            told[0] = float(sys.stdin.readline() or 0)
        if o.ranks > 1:
            dist.broadcast(told, 0)
        if told[0] == 0:
            return
        yield float(told[0])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-model", choices=["mlp", "gpt"], default="mlp")
    p.add_argument("-optim", choices=["sgd", "adamw"], default="sgd")
    p.add_argument("-dtype", choices=["float32", "bfloat16"], default="float32", help="bfloat16: float32 parameters under autocast")
    p.add_argument("-batch", type=int, default=64)
    p.add_argument("-rank", type=int, default=0)
    p.add_argument("-ranks", type=int, default=1)
    p.add_argument("-threads", type=int, default=1)
    p.add_argument("-compile", action="store_true")
    o = p.parse_args()
    if o.ranks > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29000 + os.getppid() % 1000), "GLOO_SOCKET_IFNAME": "lo"}
        dist.init_process_group("gloo", rank=o.rank, world_size=o.ranks)
    t = Trainer(o)
    t.steps(10)  # compiles
    for seconds in orders(o):
        result = t.measure(seconds)
        if o.rank == 0:
            print(json.dumps(result), flush=True)
    if o.ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
