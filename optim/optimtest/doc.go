// Package optimtest is the part of the conformance suite of devices that needs layers and optimizers. The rest is package tensortest: who
// writes a device runs both.
//
// [Run] compares a device with the CPU by what optimizers do to given gradients, in every type, and by the losses of two models in training.
// On a device that counts, it also checks that a step copies nothing and waits for nothing.
package optimtest
