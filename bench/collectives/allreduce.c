// All-reduce of float32 sums, in place, with MPI:  mpicc -O2 allreduce.c -o allreduce; mpirun -n 2 ./allreduce 4 65536
// For each size it prints BYTES and the median time of a call in µs: over BLOCKS blocks of calls, by the slowest rank.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 9 };
static const double BLOCK_TIME = 0.05; // seconds, at least 3 calls

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// block returns the time of a call, in seconds.
static double block(float *x, int n, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < calls; i++) MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double mine = (MPI_Wtime() - begin) / calls, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

// check ends the job when an all-reduce of 1, 2, 3, … (times the rank + 1) is wrong.
static void check(float *x, int n, int rank, int size) {
    for (int i = 0; i < n; i++) x[i] = (float)(i % 1000) * (rank + 1);
    MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        if (x[i] != (float)(i % 1000) * size * (size + 1) / 2) {
            fprintf(stderr, "wrong result at %d of %d\n", i, n);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, length;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_library_version(version, &length);
    if (rank == 0) fprintf(stderr, "%s\n", version);
    for (int a = 1; a < argc; a++) {
        long bytes = atol(argv[a]);
        int n = (int)(bytes / (long)sizeof(float));
        float *x = calloc((size_t)n, sizeof(float)); // zeros stay zeros
        double times[BLOCKS], first = block(x, n, 3);
        double want = BLOCK_TIME / first;
        int calls = want < 3 ? 3 : want > 20000 ? 20000 : (int)want; // first is the same on all ranks
        for (int b = 0; b < BLOCKS; b++) times[b] = block(x, n, calls);
        qsort(times, BLOCKS, sizeof *times, ascending);
        check(x, n, rank, size);
        if (rank == 0) printf("%ld %.3f\n", bytes, 1e6 * times[BLOCKS / 2]);
        free(x);
    }
    MPI_Finalize();
}
