// Package master has the values that an optimizer keeps of parameters: float32 masters of those of 16-bit floats, and moving averages.
package master
