//go:build linux || darwin

package main

import (
	"fmt"
	"os"
	"syscall"
)

// signalSelf kills or stops this process.
func signalSelf(kind string) error {
	signals := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}
	s, ok := signals[kind]
	if !ok {
		return fmt.Errorf("no fault is called %q", kind)
	}
	return syscall.Kill(os.Getpid(), s)
}
