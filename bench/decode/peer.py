"""Does as main.go does with transformers' GPT-2, eager."""
import statistics
import sys
import time

import torch
import transformers

threads, dtype = int(sys.argv[1]), getattr(torch, sys.argv[2])
torch.set_num_threads(threads)
torch.manual_seed(1)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).to(dtype).eval()
print("torch", torch.__version__, "transformers", transformers.__version__, flush=True)
for line in sys.stdin:
    took = []
    with torch.inference_mode():
        ids, cache = torch.tensor([[1]]), None
        for _ in range(int(line)):
            start = time.perf_counter()
            out = model(ids, past_key_values=cache, use_cache=True)
            cache, ids = out.past_key_values, out.logits[:, -1:].argmax(-1)
            ids.item()
            took.append(time.perf_counter() - start)
    print(statistics.median(took), flush=True)
