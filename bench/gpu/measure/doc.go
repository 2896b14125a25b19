// Package measure has the measurements of command gpu (bench/gpu): each section is some kernels or training steps on a device, and a Row of
// rates for each case whose results are right.
//
//	measure.go   Options.Run; sections.go: the list, and products, rows of memory-bound kernels, AdamW
//	meter.go     how a case is measured; checks*.go: what its results are compared with
//	training.go  training steps; account.go: each operation of one
//	allreduce.go sums of ranks on one device; nccl.go and stages.go: ranks over NCCL
package measure
