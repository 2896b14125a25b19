"""A mixture of experts in PyTorch, the peer of the command beside it: for each number of seconds that it reads, it computes forward and
backward passes for about that long and prints a line of JSON. -what loop multiplies expert by expert, grouped uses torch's grouped_mm."""
import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F

TOKENS, FEATURES, HIDDEN, EXPERTS, TOP = 2048, 512, 1024, 8, 2


class Mixture(torch.nn.Module):
    def __init__(self, grouped):
        super().__init__()
        self.grouped = grouped
        self.router = torch.nn.Linear(FEATURES, EXPERTS, bias=False)
        make = lambda *shape: torch.nn.Parameter(torch.empty(*shape).uniform_(-shape[-1] ** -0.5, shape[-1] ** -0.5))
        self.gate, self.up, self.down = make(EXPERTS, HIDDEN, FEATURES), make(EXPERTS, HIDDEN, FEATURES), make(EXPERTS, FEATURES, HIDDEN)

    def forward(self, x):
        values, chosen = self.router(x).topk(TOP)
        weights = values.softmax(-1)
        return self.sorted(x, weights, chosen) if self.grouped else self.loop(x, weights, chosen)

    def loop(self, x, weights, chosen):
        y = torch.zeros_like(x)
        for e in range(EXPERTS):
            token, place = torch.where(chosen == e)
            rows = x[token]
            rows = F.linear(F.silu(F.linear(rows, self.gate[e])) * F.linear(rows, self.up[e]), self.down[e])
            y = y.index_add(0, token, rows * weights[token, place, None])
        return y

    def sorted(self, x, weights, chosen):
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        ends = torch.bincount(flat, minlength=EXPERTS).cumsum(0).to(torch.int32)
        mm = lambda a, w: F.grouped_mm(a, w.transpose(1, 2), offs=ends)
        rows = x[order // TOP]
        rows = mm(F.silu(mm(rows, self.gate)) * mm(rows, self.up), self.down)
        return torch.zeros_like(x).index_add(0, order // TOP, rows * weights.flatten()[order, None])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-what", choices=["loop", "grouped"], default="loop")
    p.add_argument("-compile", action="store_true")
    p.add_argument("-threads", type=int, default=2)
    p.add_argument("-dtype", default="float32")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    dtype = getattr(torch, o.dtype)
    model, x = Mixture(o.what == "grouped").to(dtype), torch.randn(TOKENS, FEATURES, dtype=dtype, requires_grad=True)
    forward = torch.compile(model, dynamic=True) if o.compile else model

    def step():
        forward(x).sum().backward()

    for line in sys.stdin:
        seconds = float(line)
        step()
        n, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            step()
            n += 1
        print(json.dumps({"steps_per_s": n / (time.perf_counter() - start), "torch": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
