// Package quant communicates numbers in 8 or 4 bits, for fsdp's Config.Weights and Config.Grads: quant.go writes them, in blocks of 256
// with a scale each, gather.go all-gathers values, and hops.go adds up gradients. It is the quantization of ZeRO++ (Wang et al. 2023): a
// number is an integer times the scale of its block.
package quant
