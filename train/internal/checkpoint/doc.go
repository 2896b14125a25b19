// Package checkpoint saves a training loop to a directory of package ckpt's checkpoints, and goes on from the newest one.
package checkpoint
