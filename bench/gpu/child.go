package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// All code that uses the device runs in its own process: if one crashes or hangs, the others still run.

// childCommand returns a command that runs this program again.
func (o *options) childCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{args[0], "-device", o.device, "-window", o.window.String(), "-python", "",
		fmt.Sprint("-small=", o.small), "-exchange", o.exchange}, args[1:]...)...)
	cmd.WaitDelay = waitDelay
	return cmd, nil
}

// waitDelay is how long a killed process's own children may keep its output open.
const waitDelay = 5 * time.Second

// child runs a command of this program, for at most the time of a test, and shows its output.
func (o *options) child(out io.Writer, args ...string) error {
	ctx, cancel := o.timeout()
	defer cancel()
	cmd, err := o.childCommand(ctx, args...)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = out, out
	return explained(ctx, cmd.Run())
}

// timeout ends at the deadline, or when one test or section has taken too long.
func (o *options) timeout() (context.Context, context.CancelFunc) {
	end := time.Now().Add(o.each)
	if end.After(o.deadline) {
		end = o.deadline
	}
	return context.WithDeadline(context.Background(), end)
}

// explained is the error of a process that ran under ctx.
func explained(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("stopped: it took too long (-each, -limit)")
	}
	return err
}

// logWriter appends to a file in the folder for logs.
type logWriter struct {
	o    *options
	name string
}

func (w logWriter) Write(b []byte) (int, error) {
	w.o.log(w.name, b)
	return len(b), nil
}

// log appends to a file in the folder for logs, if there is one.
func (o *options) log(name string, text []byte) {
	if o.logs == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(o.logs, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.Write(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "gpu: %v\n", err)
	}
}
