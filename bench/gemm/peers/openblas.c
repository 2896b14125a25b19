// The OpenBLAS side of run: openblas THREADS. Answers "ta tb m n k seconds" by "GFLOP/s checksum".
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Small integers: their products and sums are exact.
static float *matrix(size_t n) {
  float *x = aligned_alloc(64, (n * sizeof *x + 63) & ~(size_t)63);
  for (size_t i = 0; i < n; i++) x[i] = (float)(i * 7 % 13) - 6;
  return x;
}

static int later(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

enum { BLOCKS = 1024 };

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  openblas_set_num_threads(atoi(argv[1]));
  printf("%s %s\n", openblas_get_config(), openblas_get_corename());
  fflush(stdout);
  char ta, tb;
  int m, n, k;
  double seconds;
  while (scanf(" %c %c %d %d %d %lf", &ta, &tb, &m, &n, &k, &seconds) == 6) {
    float *a = matrix((size_t)m * k), *b = matrix((size_t)k * n), *c = matrix((size_t)m * n);
    double spent = 0, took[BLOCKS];
    long calls = 1;
    int block = -1;
    for (; spent < seconds && block < BLOCKS; block++) { // the first call warms up
      double begin = now();
      for (long i = 0; i < calls; i++)
        cblas_sgemm(CblasRowMajor, ta == 'T' ? CblasTrans : CblasNoTrans, tb == 'T' ? CblasTrans : CblasNoTrans, m, n, k, 1,
                    a, ta == 'T' ? m : k, b, tb == 'T' ? k : n, 0, c, n);
      double t = now() - begin;
      if (block < 0) {
        calls = 1 + (long)(seconds / 8 / t);
        continue;
      }
      spent += took[block] = t;
    }
    qsort(took, block, sizeof *took, later);
    long check = 0;
    for (size_t i = 0; i < (size_t)m * n; i++) check += (long)c[i] * (long)(i % 7 + 1);
    printf("%.3f %ld\n", 2.0 * m * n * k * calls / took[block / 2] / 1e9, check);
    fflush(stdout);
    free(a), free(b), free(c);
  }
}
