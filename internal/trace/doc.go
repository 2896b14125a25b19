// Package trace records spans of work (steps, phases, kernels, communication) without allocation. Package timeline makes files of them.
package trace
