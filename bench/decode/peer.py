"""Does as main.go does with transformers' GPT-2, eager. "read" is answered with the seconds to read as many bytes as the weights have."""
import statistics
import sys
import time

import torch
import transformers

threads, dtype = int(sys.argv[1]), getattr(torch, sys.argv[2])
torch.set_num_threads(threads)
torch.manual_seed(1)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).to(dtype).eval()
size = sum(p.numel() * p.element_size() for p in model.parameters())
words = torch.ones(size // 4)
print("torch", torch.__version__, "transformers", transformers.__version__, flush=True)
for line in sys.stdin:
    took = []
    if line.strip() == "read":
        for _ in range(5):
            start = time.perf_counter()
            words.max()
            took.append(time.perf_counter() - start)
        print(min(took), flush=True)
        continue
    with torch.inference_mode():
        ids, cache = torch.tensor([[1]]), None
        for _ in range(int(line)):
            start = time.perf_counter()
            out = model(ids, past_key_values=cache, use_cache=True)
            cache, ids = out.past_key_values, out.logits[:, -1:].argmax(-1)
            ids.item()
            took.append(time.perf_counter() - start)
    print(statistics.median(took), flush=True)
