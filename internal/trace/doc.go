// Package trace records spans of work (steps, phases, kernels, communication) with no allocation. Package timeline makes files of them.
package trace
