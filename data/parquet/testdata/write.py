"""Writes the files of this folder: python write.py, with pyarrow 22.0.0; types.parquet with 26.0.1."""

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

n = 50
pq.write_table(pa.table({
    "half": pa.array([i / 4 for i in range(n)], pa.float16()),
    "fixed": pa.array([[i, i / 2, -i] for i in range(n)], pa.list_(pa.float32(), 3)),
    "list": pa.array([[i * 3, 1 - i] for i in range(n)], pa.list_(pa.int64())),
    "halves": pa.array([[i * 8, -i / 8] for i in range(n)], pa.list_(pa.float16())),
    "time": pa.array([i for i in range(n)], pa.timestamp("us", "UTC")),
    "money": pa.array([i for i in range(n)], pa.decimal128(9, 2)),
    "ragged": pa.array([[1.5] * (2 if i == 1 else 4 if i == 2 else 3) for i in range(n)]),
    "longer": pa.array([[1.5] * (3 if i == 3 else 2) for i in range(n)]),
    "hole": pa.array([[None if i == 5 else 1.5, 2.5] for i in range(n)]),
    "none": pa.array([None if i == 5 else [1.5] for i in range(n)]),
    "texts": pa.array([["a", "b"] for i in range(n)]),
    "pair": pa.array([{"a": 1, "b": 2} for i in range(n)]),
    "deep": pa.array([[[1.5]] for i in range(n)]),
    "large": pa.array([2**53 + 1 for i in range(n)]),
    "y": pa.array([i for i in range(n)]),
}), "types.parquet", compression="lz4", data_page_version="2.0", data_page_size=100)
