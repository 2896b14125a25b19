// Package gpt is the transformer that the benchmarks and the tests of devices train.
package gpt
