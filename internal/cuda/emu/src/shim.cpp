// What every compiled module has besides its kernels.
#include "fiber.cpp"
#include "mma.cpp"
#include "hopper.cpp"
