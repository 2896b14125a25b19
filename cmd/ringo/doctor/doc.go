// Package doctor finds out what this machine has for training: instruction sets, shared memory, limits, NVIDIA's libraries and GPUs.
// It names what is missing, and the command that gets it. `ringo doctor` prints this, and so does the program that runs the tests on a
// machine with a GPU.
package doctor
