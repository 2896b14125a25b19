// Package doctor finds out what this machine has for training: instruction sets, shared memory, limits, NVIDIA's libraries and
// GPUs; what is missing, and the command that gets it. `ringo doctor` prints it, and so does the program that takes the tests
// to a machine with a GPU.
package doctor
