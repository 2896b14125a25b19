"""Answers the requests of run as main.go does, with PyTorch: products of bfloat16 matrices, and training steps of float32
parameters under torch.autocast (argument 1: threads; argument 2: eager or compiled)."""
import json
import sys
import time

import torch

torch.set_num_threads(int(sys.argv[1]))
torch.set_flush_denormal(True)
COMPILED = sys.argv[2] == "compiled"


def best(f, seconds):
    for _ in range(3):
        f()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < seconds / 5:
        f()
        calls += 1
    least = (time.perf_counter() - start) / calls
    for _ in range(4):
        start = time.perf_counter()
        for _ in range(calls):
            f()
        least = min(least, (time.perf_counter() - start) / calls)
    return least


def uniform(*dims):
    return torch.rand(*dims) * 2 - 1


def product(r):
    a = uniform(*((r["K"], r["M"]) if r["TransA"] else (r["M"], r["K"]))).bfloat16()
    b = uniform(*((r["N"], r["K"]) if r["TransB"] else (r["K"], r["N"]))).bfloat16()
    a, b = a.t() if r["TransA"] else a, b.t() if r["TransB"] else b

    def step():
        with torch.no_grad():
            torch.matmul(a, b)

    return step


def network(r):
    model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 10))
    if r["Optim"] == "sgd":
        opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    else:
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    x, y = uniform(r["Batch"], 784), torch.arange(r["Batch"]) % 10

    def loss(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.nn.functional.cross_entropy(model(x), y)

    forward = torch.compile(loss) if COMPILED else loss

    def step():
        opt.zero_grad(set_to_none=True)
        forward(x, y).backward()
        opt.step()

    return step


print(f"PyTorch {torch.__version__}, {sys.argv[2]}", flush=True)
for line in sys.stdin:
    r = json.loads(line)
    print(best((network if r.get("Optim") else product)(r), r["Seconds"]), flush=True)
