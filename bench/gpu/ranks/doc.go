// Package ranks makes ranks over NCCL in one process, and what they divide in the sections stages and ring of bench/gpu: a pipeline's
// layers, and the sequence of a ring.
package ranks
