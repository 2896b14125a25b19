// Groups of rows, whose sizes stay on the device.

// size_of_group is the size of group e. A negative size counts as 0, and a size is at most the number of rows that are left.
__device__ __forceinline__ i64 size_of_group(const i64* counts, i64 e, i64 first, i64 rows) {
  i64 n = counts[e] < 0 ? 0 : counts[e];
  return n < rows - first ? n : rows - first;
}

// check_counts reports a negative size, or the sum of the sizes if that is not the number of rows.
__device__ __forceinline__ void check_counts(const i64* counts, i64 rows, i64 groups, u64* bad, u32 op) {
  if (blockIdx.x || blockIdx.y || blockIdx.z || threadIdx.x || threadIdx.y) return;
  i64 sum = 0;
  for (i64 e = 0; e < groups; e++) {
    if (counts[e] < 0) check_index(bad, op, counts[e], rows);
    sum += counts[e];
  }
  if (sum != rows) check_index(bad, op, sum, 0);
}

// Group is `count` rows from `first` on.
struct Group { i64 number, first, count; };

// group_of finds the group of tile number `tile` of SIZE rows, and changes `tile` to its number in the group. After the last tile it
// returns group number `groups`.
template <int SIZE> __device__ __forceinline__ Group group_of(const i64* counts, i64 rows, i64 groups, i64& tile) {
  Group g = {0, 0, 0};
  for (; g.number < groups; g.number++) {
    g.count = size_of_group(counts, g.number, g.first, rows);
    i64 tiles = (g.count + SIZE - 1) / SIZE;
    if (tile < tiles) break;
    tile -= tiles;
    g.first += g.count;
  }
  return g;
}

__device__ __forceinline__ Group group_number(const i64* counts, i64 rows, i64 number) {
  i64 first = 0;
  for (i64 e = 0; e < number; e++) first += size_of_group(counts, e, first, rows);
  return {number, first, size_of_group(counts, number, first, rows)};
}
