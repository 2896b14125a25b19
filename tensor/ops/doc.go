// Package ops has operations of layers: attention, softmax, dropout, convolutions, pooling, pictures of another size, batch normalization,
// rotary positions, grouped products, running sums, sorting, losses, norms, and products of 8-bit floats. It also has those that choose
// elements: by indices (Embedding, Gather, ScatterAdd), by a mask (Where), the largest and smallest ones.
//
// Each is registered as an operation of your own would be, with what packages tensor and cpu export: tensor.Register takes its gradient
// rule, cpu.Register its kernels, and Tape.Record puts a call on the tape. So this package shows how to write one: pool2d.go is a short
// example, conv_cpu.go has kernels that keep memory on their device. Kernels for CUDA are in package tensor/cuda. Models call package nn.
package ops
