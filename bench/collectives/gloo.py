"""All-reduce of float32 sums, in place, with Gloo (torch.distributed):  python3 gloo.py RANKS BYTES...

Prints what mpi.c prints: BYTES and the median time of a call in µs, over blocks of calls, by the slowest rank.
"""
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BLOCKS, BLOCK_TIME = 5, 0.05


def block(x, calls):
    """Returns the time of a call, in seconds."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x)
    slowest = torch.tensor([(time.perf_counter() - begin) / calls], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def rank_main(rank, ranks, port, sizes):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    for size in sizes:
        x = torch.zeros(size // 4)
        calls = max(3, min(20000, int(BLOCK_TIME / block(x, 3))))
        median = statistics.median(block(x, calls) for _ in range(BLOCKS))
        exact = (torch.arange(size // 4) % 1000).float()
        x = exact * (rank + 1)
        dist.all_reduce(x)
        if not torch.equal(x, exact * (ranks * (ranks + 1) / 2)):
            sys.exit(f"wrong result of {size} bytes")
        if rank == 0:
            print(size, f"{1e6 * median:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    print("PyTorch", torch.__version__, file=sys.stderr)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.spawn(rank_main, args=(int(sys.argv[1]), free, [int(a) for a in sys.argv[2:]]), nprocs=int(sys.argv[1]))
