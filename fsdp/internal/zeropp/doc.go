// Package zeropp has what ZeRO++ (Wang et al. 2023) adds to fsdp: numbers that are communicated in 8 or 4 bits, for Config.Weights and
// Config.Grads, and a copy of the values in each host, for Config.Host.
//
//   - quant.go writes numbers, in blocks of 256 with a scale each: a number is an integer times the scale of its block.
//   - gather.go all-gathers values, and hops.go adds up gradients.
//   - host.go: the ranks of a host, and their copy.
package zeropp
