//go:build !linux

package ckpt

import "os"

// startFlush does nothing: Sync will flush everything.
func startFlush(*os.File, int64, int) {}
