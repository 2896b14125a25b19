// Package optimtest is the part of the conformance suite of devices that needs layers and optimizers. The other part is package tensortest:
// run both if you write a device.
//
// [Run] compares a device with the CPU: the results of optimizers for given gradients, in every type, and the losses of two models in
// training. If the device counts its copies and waits, Run also checks that a step makes none.
package optimtest
