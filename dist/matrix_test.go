//go:build unix

package dist_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/netns"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// matrixTimeout is T of the tables: how long an operation may go without progress.
const matrixTimeout = 2 * time.Second

// matrixChild is a rank of a cell: it repeats one operation. The victim says "ready" when it has done it a few times; what
// happens then is the cell's fault. Each rank says at last how it ended.
func matrixChild(spec string) error {
	f := strings.Split(spec, ",") // operation, what to do, victim, elements
	victim, err1 := strconv.Atoi(f[2])
	count, err2 := strconv.Atoi(f[3])
	begin := time.Now()
	how, well := strings.CutSuffix(f[1], " and well")
	return errors.Join(err1, err2, dist.Run(context.Background(), dist.Config{Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		g := r.World
		op := disttest.Operations()[slices.IndexFunc(disttest.Operations(), func(o disttest.Operation) bool { return o.Name == f[0] })]
		for step := 0; ; step++ {
			hurt := g.Rank() == victim
			if hurt && step == 3 {
				begin = time.Now()
				fmt.Println("ready")
				if how == "before" {
					select {} // until the signal
				}
			}
			if hurt && how == "late" {
				<-time.After(matrixTimeout / 4)
			}
			if err := op.Run(g, victim, count); err != nil {
				fmt.Println("ended:", err)
				return nil
			}
			if !well {
				continue
			}
			if over, err := enough(g, hurt && step > 3 && (how == "late" || time.Since(begin) > 2*time.Second)); over || err != nil {
				fmt.Println("ended:", outcome(err))
				return nil
			}
		}
	}))
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "well"
}

// enough asks whether any rank has had enough.
func enough(g *dist.Group, me bool) (bool, error) {
	x := []float64{0}
	if me {
		x[0] = 1
	}
	err := g.SumFloats(x)
	return x[0] > 0, err
}

// fault is a column of the matrix.
type fault struct {
	name   string
	row    int
	how    string // of the child
	count  int
	cut    bool                           // in namespaces: the cable is what fails
	strike func(t *testing.T, victim int) // the victim's process
	says   string                         // in every live rank's error; "": there is none
	bound  time.Duration
}

func signal(sig syscall.Signal) func(t *testing.T, pid int) {
	return func(t *testing.T, pid int) { require.NoError(t, syscall.Kill(pid, sig)) }
}

// stutter stops and continues a process for a while.
func stutter(t *testing.T, pid int) {
	for range 8 {
		signal(syscall.SIGSTOP)(t, pid)
		<-time.After(60 * time.Millisecond)
		signal(syscall.SIGCONT)(t, pid)
		<-time.After(20 * time.Millisecond)
	}
}

const stopBound = matrixTimeout + 200*time.Millisecond

// faults are all columns. "Before": the victim has nothing under way, the others wait for it. "During": it is somewhere in
// its operations.
var faults = []fault{
	{name: "killed before", row: 13, how: "before", count: 1000, strike: signal(syscall.SIGKILL), says: "closed the connection", bound: time.Second},
	{name: "killed during", row: 13, how: "during", count: 150_000, strike: signal(syscall.SIGKILL), says: "closed the connection", bound: time.Second},
	{name: "stopped before", row: 14, how: "before", count: 1000, strike: signal(syscall.SIGSTOP), says: "no progress", bound: stopBound},
	{name: "stopped during", row: 14, how: "during", count: 150_000, strike: signal(syscall.SIGSTOP), says: "no progress", bound: stopBound},
	{name: "cable cut", row: 14, how: "during", count: 1000, cut: true, says: "no progress", bound: stopBound},
	{name: "late", how: "late", count: 1000},
	{name: "slow", how: "during", count: 50_000, strike: stutter},
}

// TestEveryOperation hits every operation with every fault, on every engine for processes. Without RINGO_LONG it does one
// column, each operation on one engine.
func TestEveryOperation(t *testing.T) {
	for engine, env := range engines {
		for _, f := range faults {
			if !disttest.Long() && f.name != "killed during" {
				continue
			}
			t.Run(engine+" "+f.name, func(t *testing.T) {
				for i, op := range disttest.Operations() {
					if !disttest.Long() && (engine == "tcp") != (i%2 == 0) {
						continue
					}
					t.Run(op.Name, func(t *testing.T) {
						t.Parallel()
						f.cell(t, engine, env, op.Name, i%3)
					})
				}
			})
		}
	}
}

// cell runs a job of three ranks that repeats one operation, hurts the victim, and looks at what the others say.
func (f *fault) cell(t *testing.T, engine, env, op string, victim int) {
	var hosts []*netns.Host
	if f.cut {
		hosts = netns.New(t, 3)
	}
	if f.says == "" {
		f.how += " and well"
	}
	spec := fmt.Sprintf("DIST_TEST_CHILD=matrix:%s,%s,%d,%d", op, f.how, victim, f.count)
	j := startJob(t, 3, hosts, 29_500, spec, env, "RINGO_TIMEOUT="+matrixTimeout.String())
	j.ranks[victim].await(t, "ready")
	struck := time.Now()
	switch {
	case f.cut:
		hosts[victim].Cut()
	case f.strike != nil:
		f.strike(t, j.ranks[victim].cmd.Process.Pid)
	}
	for rank, p := range j.ranks {
		if f.says == "" {
			end, _ := p.await(t, "ended: ")
			assert.Equal(t, "well", end, "rank %d", rank)
			continue
		}
		if rank == victim {
			continue
		}
		end, at := p.await(t, "ended: ")
		assert.Regexp(t, fmt.Sprintf(`\brank %d\b`, victim), end, "rank %d", rank)
		assert.Regexp(t, `(`+says(op)+`) seq \d+ of group world`, end, "rank %d", rank)
		assert.Contains(t, end, f.says, "rank %d", rank)
		reliability.Took(t, f.row, engine, f.bound, at.Sub(struck))
	}
	if t.Failed() {
		t.Log(j.text())
	}
	if f.says != "" {
		_ = j.ranks[victim].cmd.Process.Kill() // it may be stopped, or cut off
	}
	for _, p := range j.ranks {
		<-p.done
	}
}

// says is what an error may call an operation.
func says(op string) string {
	if op == "send" || op == "recv" || op == "batch" {
		return "send|recv|batch"
	}
	return op
}
