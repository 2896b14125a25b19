// Pairs of features, turned by the angles of their position.

// rotary: a thread for each of n pairs of x [.., time, width]; head features share the angles of a row of table, of which first
// is that of the first position; those from brk on are `jump` rows later.
extern "C" __global__ void rotary(T* y, const T* x, const W* table, i64 n, i64 time, i64 width, i64 head, i64 first, int interleaved,
                                  int sign, i64 brk, i64 jump) {
  i64 half = head / 2;
  for (i64 pair = first_item(); pair < n; pair += all_threads()) {
    i64 i = pair % half, row = pair / (width / 2), at = pair / half * head;
    i64 k = interleaved ? at + 2 * i : at + i, partner = interleaved ? k + 1 : k + half;
    i64 position = row % time;
    const W* angles = table + (first + position + (position >= brk ? jump : 0)) * head;
    W c = angles[i], s = (W)sign * angles[half + i], u = widen(x[k]), v = widen(x[partner]);
    y[k] = narrow<T>(u * c - v * s);
    y[partner] = narrow<T>(v * c + u * s);
  }
}
