// Package algo holds the algorithms of collectives, a short file each, with what they cost at the top. Those named direct
// work on the memory of peers (backend.Window); those named linear send messages (backend.Transport). They share one
// Reducer, so that a sum has the same bits on goroutines and between processes: elements are combined in rank order,
// 16-bit floats in a float32 accumulator that is rounded once.
package algo
