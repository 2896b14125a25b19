"""Writes the files of this folder: python write.py, with pyarrow 22.0.0."""

import pyarrow as pa
import pyarrow.parquet as pq

n = 400
table = pa.table({
    "id": pa.array([f"row {i}" for i in range(n)]),
    "f64": pa.array([i / 8 for i in range(n)], pa.float64()),
    "f32": pa.array([-i / 4 for i in range(n)], pa.float32()),
    "i8": pa.array([i % 7 - 3 for i in range(n)], pa.int8()),
    "u32": pa.array([4294967295 - i % 2 * 4294967295 for i in range(n)], pa.uint32()),
    "i64": pa.array([i * i for i in range(n)], pa.int64()),
    "flag": pa.array([i % 3 == 0 for i in range(n)]),
    "kind": pa.array([["cat", "ant", "bee"][i % 3] for i in range(n)]),
    "day": pa.array([i for i in range(n)], pa.date32()),
    "list": pa.array([[i] for i in range(n)]),
})
for codec in ("NONE", "SNAPPY", "GZIP", "ZSTD", "BROTLI", "LZ4"):
    version = "2.0" if codec in ("ZSTD", "LZ4") else "1.0"
    pq.write_table(table, f"{codec.lower()}.parquet", compression=codec, row_group_size=150, data_page_version=version,
                   data_page_size=400, use_dictionary=["kind", "i8"])
pq.write_table(table, "plain.parquet", store_schema=False, version="1.0", coerce_timestamps="ms")
