// Package quant writes numbers in 8 or 4 bits, in blocks of 256 with a scale each, for fsdp's Config.Weights and Config.Grads. It is
// blockwise quantization as in ZeRO++ (Wang et al. 2023): a number is an integer times the scale of its block.
package quant
