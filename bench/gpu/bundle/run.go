package bundle

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// Run unpacks the file of this process, and runs its Program with these arguments. It returns the exit code.
func Run(args []string) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "ringo-gpu-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := Unpack(self, dir); err != nil {
		return 1, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, Path(dir, Program), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}
