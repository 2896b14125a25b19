"""Answers the requests of run as main.go does, with PyTorch: products of bfloat16 matrices (argument: threads)."""
import json
import sys
import time

import torch

torch.set_num_threads(int(sys.argv[1]))
torch.set_flush_denormal(True)


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


print(f"PyTorch {torch.__version__}", flush=True)
for line in sys.stdin:
    r = json.loads(line)
    print(best(product(r), r["Seconds"]), flush=True)
