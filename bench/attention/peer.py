"""Attention in PyTorch, the peer of the command beside it: for each number of seconds that it reads, it works for about that long and prints a
line of JSON. -gqa leaves it to PyTorch that heads share keys and values; without it they are repeated before, as models do."""
import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F

BATCH, TOKENS, HEADS, KV_HEADS, HEAD_DIM = 8, 1024, 8, 2, 64


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-what", choices=["forward", "both"], default="both")
    p.add_argument("-gqa", action="store_true")
    p.add_argument("-threads", type=int, default=2)
    p.add_argument("-dtype", choices=["float32", "bfloat16"], default="float32")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    # As a model has them, [batch, tokens, heads, features], seen as PyTorch wants them.
    dtype = getattr(torch, o.dtype)
    make = lambda heads: torch.randn(BATCH, TOKENS, heads, HEAD_DIM, dtype=dtype, requires_grad=o.what == "both")
    q, k, v, grad = make(HEADS), make(KV_HEADS), make(KV_HEADS), torch.randn(BATCH, HEADS, TOKENS, HEAD_DIM, dtype=dtype)

    def step():
        heads = [x.transpose(1, 2) for x in (q, k, v)]
        if not o.gqa:
            heads[1:] = [x.repeat_interleave(HEADS // KV_HEADS, 1) for x in heads[1:]]
        y = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=o.gqa)
        if o.what == "both":
            torch.autograd.grad(y, (q, k, v), grad)

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
