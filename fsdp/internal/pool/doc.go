// Package pool has memory for tensors that need it for some of the time: whole units, their gradients, and the codes of both.
package pool
