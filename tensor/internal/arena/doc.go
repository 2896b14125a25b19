// Package arena gives out the memory of training steps.
//
// A step makes thousands of tensors, and nearly the same ones in each step. An [Arena] takes memory from its device in slabs, cuts blocks
// from them, and keeps what is freed for the next tensor: after the first steps it takes nothing any more. arena.go gives blocks out and
// takes them back, idle.go gives idle memory back to the device, if shapes change and it becomes more than the step uses. An Arena belongs
// to one goroutine. It knows no tensor and no tape.
package arena
