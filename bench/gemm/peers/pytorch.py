"""The PyTorch side of run: pytorch.py THREADS. Answers "ta tb m n k seconds" by "GFLOP/s checksum"."""
import sys
import time

import torch


def matrix(rows, cols):
    """Small integers: their products and sums are exact."""
    return (torch.arange(rows * cols) * 7 % 13 - 6).float().reshape(rows, cols)


def measure(ta, tb, m, n, k, seconds):
    a = matrix(k, m).t() if ta == "T" else matrix(m, k)
    b = matrix(n, k).t() if tb == "T" else matrix(k, n)
    c = torch.empty(m, n)
    begin = time.perf_counter()
    torch.mm(a, b, out=c)  # warms up
    calls = 1 + int(seconds / 8 / (time.perf_counter() - begin))
    blocks = []
    while sum(blocks) < seconds:
        begin = time.perf_counter()
        for _ in range(calls):
            torch.mm(a, b, out=c)
        blocks.append(time.perf_counter() - begin)
    check = (c.flatten().long() * (torch.arange(m * n) % 7 + 1)).sum().item()
    return 2 * m * n * k * calls / sorted(blocks)[len(blocks) // 2] / 1e9, check


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    mkl = next((line.strip("- ") for line in torch.__config__.show().splitlines() if "Math Kernel" in line), "")
    print("PyTorch", torch.__version__, mkl, flush=True)
    with torch.no_grad():
        for line in sys.stdin:
            ta, tb, m, n, k, seconds = line.split()
            speed, check = measure(ta, tb, int(m), int(n), int(k), float(seconds))
            print(f"{speed:.3f} {check}", flush=True)
