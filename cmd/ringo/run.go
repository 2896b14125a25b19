package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/dist/launch"
)

// runCmd is `ringo run`.
type runCmd struct {
	Ranks   int           `short:"n" required:"" placeholder:"N" help:"Number of ranks, each a process."`
	Timeout time.Duration `placeholder:"5s" help:"Longest that an operation may wait for another rank; the program's own setting if absent."`
	Threads int           `placeholder:"T" help:"Compute threads of each rank; by default the ranks share the cores."`
	Program []string      `arg:"" passthrough:"partial" help:"Program, or Go package such as ./examples/ddp-mnist, and its arguments."`
}

// Help is the text below the flags of `ringo run -h`.
func (*runCmd) Help() string {
	return `Starts PROGRAM as N processes on this host. Each finds its rank and the others through the environment (RINGO_RANK,
RINGO_WORLD_SIZE, RINGO_MASTER, ...), as dist.Run does. Flags may be written -timeout or --timeout; what stands behind
PROGRAM belongs to it.

  ringo run -n 4 -timeout 5s ./examples/ddp-mnist -epochs 1

builds the example and trains on four ranks. A directory (starting with ./, ../ or /) or an import path (such as
example.com/train) is built with go build; anything else is a program in PATH or a path to one.

Every line of output gets its rank in front: "[2] epoch 1: 97.1%". When a rank fails, the others have the timeout (5s if
none is given) and 2 s more to end before they are killed; ringo prints the first cause and exits with that rank's status,
128 + n for signal n. An interrupt (Ctrl-C) is passed on to all ranks; they have 5 s, or until the second one. No process
is left behind.`
}

// Run starts the ranks and returns when all have ended.
func (r *runCmd) Run() error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	args := r.Program
	if args[0] == "--" {
		args = args[1:]
	}
	if len(args) > 0 && isPackage(args[0]) {
		dir, err := os.MkdirTemp("", "ringo-run-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		program, err := build(args[0], dir, signals)
		if err != nil {
			return err
		}
		args = append([]string{program}, args[1:]...)
	}
	return launch.Run(launch.Config{Ranks: r.Ranks, Args: args, Timeout: r.Timeout, Threads: r.Threads,
		Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals})
}

// isPackage tells whether a name is a Go package to build: a directory that cannot be meant otherwise, or an import path,
// which begins with a domain.
func isPackage(name string) bool {
	if info, err := os.Stat(name); err == nil {
		return info.IsDir() && (strings.HasPrefix(name, ".") || filepath.IsAbs(name))
	}
	domain, _, hasPath := strings.Cut(name, "/")
	return hasPath && strings.Contains(strings.TrimLeft(domain, "."), ".")
}

// build compiles a Go package into dir and returns the program's path. What go build complains about goes to stderr.
func build(pkg, dir string, signals <-chan os.Signal) (string, error) {
	cmd := exec.Command("go", "build", "-o", dir+string(filepath.Separator), pkg)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	built := make(chan error, 1)
	go func() { built <- cmd.Wait() }()
	select {
	case s := <-signals:
		if cmd.Process.Signal(s) != nil { // go build cleans up after an interrupt
			_ = cmd.Process.Kill()
		}
		<-built
		number, _ := s.(syscall.Signal)
		return "", &launch.ExitError{Code: 128 + int(number), Text: fmt.Sprintf("go build ended by signal %v", s)}
	case err := <-built:
		if err != nil {
			return "", fmt.Errorf("go build %s: %w", pkg, err)
		}
	}
	programs, err := os.ReadDir(dir)
	if err == nil && len(programs) != 1 {
		err = errors.New("it is no main package")
	}
	if err != nil {
		return "", fmt.Errorf("go build %s: %w", pkg, err)
	}
	return filepath.Join(dir, programs[0].Name()), nil
}
