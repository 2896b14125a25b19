"""Makes float8.bin.gz: what PyTorch's 8-bit floats are.

Run in this folder, with PyTorch 2.15:  python float8.py

For float8_e4m3fn, then float8_e5m2: the values of the codes 0 to 255 as float32, then the codes of all bfloat16 numbers, clamped to
the largest finite ones before as torchao's to_fp8_saturated does. Numbers are little-endian.
"""
import gzip

import torch

out = b""
numbers = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).float()
for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
    most = torch.finfo(dtype).max
    out += torch.arange(256, dtype=torch.uint8).view(dtype).float().numpy().tobytes()
    out += torch.clamp(numbers, -most, most).to(dtype).view(torch.uint8).numpy().tobytes()
with open("float8.bin.gz", "wb") as file:
    file.write(gzip.compress(out, 9, mtime=0))
