"""Answers the requests of run as main.go does, with PyTorch: products of bfloat16 matrices (argument: threads)."""
import json
import sys
import time

import torch

torch.set_num_threads(int(sys.argv[1]))
torch.set_flush_denormal(True)


def median(f, seconds):
    for _ in range(3):
        f()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < seconds / 6:
        f()
        calls += 1
    means = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            f()
        means.append((time.perf_counter() - start) / calls)
    return sorted(means)[2]


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


print(f"PyTorch {torch.__version__}", flush=True)
for line in sys.stdin:
    r = json.loads(line)
    print(median(product(r), r["Seconds"]), flush=True)
