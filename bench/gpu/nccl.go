package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/nccl"
	"github.com/ringo-ml/ringo/tensor"
)

// caller is the name in the archive of the program that calls NCCL from C. pack builds it, if there is a gcc.
const caller = "bench/gpu/caller"

//go:embed caller/nccl.c
var callerSource string

// buildCaller compiles the program for this machine.
func buildCaller(path string) error {
	source := path + ".c"
	if err := os.WriteFile(source, []byte(callerSource), 0o644); err != nil {
		return err
	}
	if out, err := exec.Command("gcc", "-O2", "-o", path, source, "-ldl").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// packedCaller returns a command for the program beside this one; arguments are still to be added.
func packedCaller() (*exec.Cmd, error) {
	b, err := unpacked()
	if err != nil {
		return nil, err
	}
	cmd, err := b.command(context.Background(), caller)
	if err != nil {
		return nil, errors.New("nothing is measured from C beside it: this file was packed where there was no gcc")
	}
	return cmd, nil
}

// ncclGPU is a device that is a GPU.
type ncclGPU interface {
	tensor.Device
	GPU() *cuda.Device
}

// measureNCCL measures the host's time for a call of NCCL, with a communicator of only this rank, and the same in C.
func measureNCCL(m *meter) error {
	dev, ok := m.dev.(ncclGPU)
	if !ok {
		return nil // there is no NCCL on the CPU
	}
	lib, err := nccl.Load()
	if err != nil {
		return err
	}
	driver, err := cuda.Load()
	if err != nil {
		return err
	}
	gpu := dev.GPU()
	if err := gpu.Lock(); err != nil {
		return err
	}
	defer gpu.Unlock()
	id, err := lib.UniqueID()
	if err != nil {
		return err
	}
	comm := lib.NewComm()
	if err := lib.Err("ncclCommInitRankConfig", comm.Init(1, &id, 0)); err != nil {
		return err
	}
	defer comm.Destroy()
	cmd, missing := m.caller()
	if missing == nil {
		cmd.Args = append(cmd.Args, driver.Lib.Path, lib.Path, fmt.Sprint(gpu.Index), fmt.Sprint(windows))
	}
	for _, count := range []int{0, 1} {
		ours, calls, err := m.reduce(lib, comm, count)
		if err != nil {
			return err
		}
		if missing == nil {
			if err := m.beside(cmd, count, calls, ours); err != nil {
				return err
			}
		}
	}
	return missing
}

// moreThanC begins the name of a row with a difference.
const moreThanC = "from Go more than from C, "

// what names the row for a number of elements.
func what(count int) string { return fmt.Sprintf("ncclAllReduce of %d elements, 1 rank", count) }

// reduce measures all-reduces in place. It returns the median of their time in seconds, and the number of calls in a window.
func (m *meter) reduce(lib *nccl.Lib, comm *nccl.Comm, count int) (each float64, calls int, err error) {
	queue := m.dev.Queue(0)
	stream := queue.(interface{ Stream() *cuda.Stream }).Stream().Handle()
	x := tensor.New(m.dev, tensor.Float32, 64)
	tensor.Constant(3).Fill(x, 0, 0)
	p := cuda.Ptr(uintptr(x.Ptr()))
	window := func(n int) (float64, error) {
		start := time.Now()
		for range n {
			if r := comm.AllReduce(p, p, count, nccl.Float32, nccl.Sum, stream); r != nccl.Success {
				return 0, lib.Err("ncclAllReduce", r)
			}
		}
		err := queue.Sync()
		return time.Since(start).Seconds(), err
	}
	first, err := window(100)
	calls = min(max(100, int(100*m.length/first)), 1_000_000)
	var took []float64
	for range windows {
		if err != nil {
			return 0, 0, err
		}
		var s float64
		s, err = window(calls)
		took = append(took, s)
	}
	if got := part(x, 0, 1)[0]; err != nil || got != 3 {
		return 0, 0, errors.Join(err, fmt.Errorf("the sum of 3 is %v", got))
	}
	return m.calls("ringo", count, calls, took), calls, nil
}

// beside measures the same in C, and how much longer a call from Go takes.
func (m *meter) beside(cmd *exec.Cmd, count, calls int, ours float64) error {
	run := exec.Command(cmd.Path, append(slices.Clone(cmd.Args[1:]), fmt.Sprint(calls), fmt.Sprint(count))...)
	var problem strings.Builder
	run.Env, run.Stderr = cmd.Env, &problem
	out, err := run.Output()
	if err != nil {
		return fmt.Errorf("from C: %w: %s", err, problem.String())
	}
	var took []float64
	for _, line := range strings.Fields(string(out)) {
		var s float64
		if _, err := fmt.Sscan(line, &s); err != nil {
			return fmt.Errorf("from C came %q: %w", line, err)
		}
		took = append(took, s)
	}
	if len(took) != windows {
		return fmt.Errorf("from C came %d windows instead of %d", len(took), windows)
	}
	more := 1e6 * (ours - m.calls("C", count, calls, took))
	m.ours(moreThanC+what(count), "µs/call", []float64{more})
	return nil
}

// calls adds a row from windows with so many calls each, and returns the median time of a call in seconds.
func (m *meter) calls(variant string, count, calls int, took []float64) float64 {
	slices.Sort(took)
	rate := func(i int) float64 { return float64(calls) / took[i] }
	m.note(row{what: what(count), variant: variant, unit: "calls/s", median: rate(windows / 2), low: rate(windows - 1), high: rate(0)})
	return took[windows/2] / float64(calls)
}
