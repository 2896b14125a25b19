// Collectives of float32 with MPI:  mpicc -O2 mpi.c -o peer; mpiexec -n 2 ./peer allreduce 8 65536
// For each size, in bytes of the full buffer, it prints BYTES and the median time of a call in µs. It measures as `ringo bench` does: three
// calls that decide how many to time in 0.1 s, a barrier, at most 25 blocks of calls, of each block the slowest rank, and the median block.
// Afterwards it checks a result. With -i before the operation the calls are the ones that do not block, each followed by MPI_Wait.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 25, LEAST_CALLS = 3, MOST_CALLS = 100000, PAGE = 4096 };
static const double ROW_TIME = 0.1; // seconds

static int rank, size, later;
static float *a, *b; // the full buffer, and another one
static MPI_Request request;

// Each operation is that of n floats a rank; there are n * size floats in a. root is where a broadcast begins.
static void allreduce(int n) {
    if (later) MPI_Iallreduce(MPI_IN_PLACE, a, n * size, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    else MPI_Allreduce(MPI_IN_PLACE, a, n * size, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void allgather(int n) {
    if (later) MPI_Iallgather(b, n, MPI_FLOAT, a, n, MPI_FLOAT, MPI_COMM_WORLD, &request);
    else MPI_Allgather(b, n, MPI_FLOAT, a, n, MPI_FLOAT, MPI_COMM_WORLD);
}
static void reducescatter(int n) {
    if (later) MPI_Ireduce_scatter_block(a, b, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    else MPI_Reduce_scatter_block(a, b, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void broadcast(int n) {
    if (later) MPI_Ibcast(a, n * size, MPI_FLOAT, 0, MPI_COMM_WORLD, &request);
    else MPI_Bcast(a, n * size, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
// pingpong sends the buffer from the first rank to the last, and back.
static void pingpong(int n) {
    int last = size - 1;
    for (int there = 1; there >= 0; there--) {
        int from = there ? 0 : last, to = last - from;
        if (rank == from) MPI_Send(a, n * size, MPI_FLOAT, to, 0, MPI_COMM_WORLD);
        if (rank == to) MPI_Recv(a, n * size, MPI_FLOAT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static const struct op {
    const char *name;
    void (*call)(int n);
} ops[] = {{"allreduce", allreduce}, {"allgather", allgather}, {"reducescatter", reducescatter}, {"broadcast", broadcast}, {"send", pingpong}};

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// calls returns the seconds that a number of calls take here.
static double calls(const struct op *op, int n, long count) {
    double begin = MPI_Wtime();
    for (long i = 0; i < count; i++) {
        op->call(n);
        if (later && op->call != pingpong) MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return MPI_Wtime() - begin;
}

static int ascending(const void *x, const void *y) {
    double p = *(const double *)x, q = *(const double *)y;
    return (p > q) - (p < q);
}

// measure returns the median seconds of a call.
static double measure(const struct op *op, int n) {
    double times[MOST_BLOCKS];
    long total = 2;
    calls(op, n, 1);
    for (int last = 0; last < 2; last++) { // the first calls of a size take longer
        double per = calls(op, n, total) / total;
        MPI_Bcast(&per, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        double want = (last ? ROW_TIME : ROW_TIME / 10) / (per < 1e-7 ? 1e-7 : per);
        total = want > MOST_CALLS ? MOST_CALLS : want < LEAST_CALLS ? LEAST_CALLS : (long)want;
    }
    int blocks = total < MOST_BLOCKS ? (int)total : MOST_BLOCKS;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < blocks; i++) times[i] = calls(op, n, total / blocks) / (total / blocks);
    MPI_Allreduce(MPI_IN_PLACE, times, blocks, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(times, blocks, sizeof *times, ascending);
    return op->call == pingpong ? times[blocks / 2] / 2 : times[blocks / 2];
}

static float value(int of, long i) { return (3 * of + 7 * i) % 12 - 5; }

// want is element i of the result of a rank.
static float want(const struct op *op, int n, long i) {
    float sum = 0;
    if (op->call == broadcast || op->call == pingpong) return value(0, i);
    if (op->call == allgather) return value(i / n, i % n);
    for (int r = 0; r < size; r++) sum += value(r, op->call == reducescatter ? (long)rank * n + i : i);
    return sum;
}

static void check(const struct op *op, int n) {
    for (long i = 0; i < (long)n * size; i++) a[i] = b[i] = value(rank, i);
    calls(op, n, 1);
    if (op->call == pingpong && rank > 0 && rank < size - 1) return;
    float *out = op->call == reducescatter ? b : a;
    for (long i = 0; i < (out == b ? n : (long)n * size); i++) {
        if (out[i] != want(op, n, i)) fail("a result is wrong");
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int length;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_library_version(version, &length);
    if (rank == 0) fprintf(stderr, "%s\n", version);
    int at = 1;
    if (at < argc && !strcmp(argv[at], "-i")) later = 1, at++;
    const struct op *op = NULL;
    for (size_t i = 0; at < argc && i < sizeof ops / sizeof *ops; i++) {
        if (!strcmp(argv[at], ops[i].name)) op = &ops[i];
    }
    if (!op) fail("usage: peer [-i] allreduce|allgather|reducescatter|broadcast|send BYTES...");
    while (++at < argc) {
        long n = atol(argv[at]) / (long)sizeof(float) / size;
        if (n < 1) n = 1;
        size_t bytes = (n * size * sizeof(float) + PAGE - 1) / PAGE * PAGE;
        a = memset(aligned_alloc(PAGE, bytes), 0, bytes); // zeros stay zeros
        b = memset(aligned_alloc(PAGE, bytes), 0, bytes);
        double seconds = measure(op, (int)n);
        check(op, (int)n);
        if (rank == 0) printf("%ld %.3f\n", n * size * (long)sizeof(float), 1e6 * seconds);
        free(a);
        free(b);
    }
    MPI_Finalize();
}
