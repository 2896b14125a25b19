// Package nvmltest makes an NVML of hosts that do not exist, compiled by gcc, for tests.
package nvmltest
