"""A convolution in PyTorch, the peer of the command beside it: for each number of seconds that it reads, it computes forward and backward
passes for about that long and prints a line of JSON."""
import argparse
import json
import sys
import time

import torch

BATCH = 64
SIZES = {"mnist1": (1, 32, 28, True), "mnist2": (32, 64, 14, False), "cifar1": (3, 64, 32, True), "cifar2": (64, 128, 16, False)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-what", choices=SIZES, default="mnist1")
    p.add_argument("-threads", type=int, default=2)
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    channels, out, pixels, first = SIZES[o.what]
    layer = torch.nn.Conv2d(channels, out, 3, padding=1)
    x, g = torch.randn(BATCH, channels, pixels, pixels, requires_grad=not first), torch.randn(BATCH, out, pixels, pixels)

    def step():
        layer.zero_grad(set_to_none=True)
        x.grad = None
        layer(x).backward(g)

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
