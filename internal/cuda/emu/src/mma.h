// What kernels do by inline PTX for sm_80 and later: matrices in the registers of
// a warp, and copies that run beside it (mma.cpp).
#pragma once
#include "fiber.h"

// emu_mma is a lane's part of d += a b, a [16,16], b [16,8], of bfloat16 or float16.
void emu_mma(float* d, const unsigned* a, unsigned b0, unsigned b1, bool f16, int line) __attribute__((visibility("hidden")));
// emu_ldmatrix loads a lane's part of four 8x8 matrices of 16-bit elements: lane
// 8m + i has the address of row i of matrix m, and gets elements of each.
void emu_ldmatrix(unsigned* r, const void* row, bool trans, int line) __attribute__((visibility("hidden")));
// emu_copy copies `real` of `size` bytes and zeros behind them, once waited for.
void emu_copy(void* to, const void* from, int size, int real, int line) __attribute__((visibility("hidden")));
void emu_copies_commit() __attribute__((visibility("hidden")));
void emu_copies_wait(unsigned but) __attribute__((visibility("hidden")));
