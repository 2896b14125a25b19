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

// matrixTimeout is T in the tables: the longest time of an operation without progress.
const matrixTimeout = 2 * time.Second

// matrixChild is a rank of a cell, as a process.
func matrixChild(spec string) error {
	f := strings.Split(spec, ",") // operation, what to do, victim, elements
	victim, err1 := strconv.Atoi(f[2])
	count, err2 := strconv.Atoi(f[3])
	r := matrixRank{op: f[0], how: f[1], victim: victim, count: count, say: func(line string) { fmt.Println(line) }}
	return errors.Join(err1, err2, dist.Run(context.Background(), dist.Config{Threads: 1}, r.run))
}

// matrixRank is a rank of a cell. It repeats one operation, and prints "ready" after a few times. Then the fault of the cell happens to
// the victim. At the end each rank prints how it ended and, if it succeeded, how long its longest step took.
type matrixRank struct {
	op, how       string
	victim, count int
	say           func(line string)
}

const slowStep = 60 * time.Millisecond // a slow rank is so much late, in eight steps

func (m *matrixRank) run(_ context.Context, r *dist.Rank) error {
	g, begin, longest := r.World, time.Now(), time.Duration(0)
	how, well := strings.CutSuffix(m.how, " and well")
	op := disttest.Operations()[slices.IndexFunc(disttest.Operations(), func(o disttest.Operation) bool { return o.Name == m.op })]
	late := map[string]time.Duration{"late": matrixTimeout / 4, "slow": slowStep}[how]
	for step := 0; ; step++ {
		start := time.Now()
		hurt := g.Rank() == m.victim && step >= 3
		if step == 3 {
			begin = start
			m.say("ready")
			if hurt && how == "before" {
				select {} // until the signal
			}
		}
		if hurt && late > 0 {
			<-time.After(late)
		}
		if err := op.Run(g, m.victim, m.count); err != nil {
			m.say("ended: " + err.Error())
			return nil
		}
		if !well {
			continue
		}
		done := map[string]bool{"late": step > 3, "slow": step > 10, "during": time.Since(begin) > 2*time.Second}[how]
		over, err := enough(g, hurt && done)
		if err != nil {
			m.say("ended: " + err.Error())
			return nil
		}
		if step >= 3 {
			longest = max(longest, time.Since(start))
		}
		if over {
			m.say("ended: well, " + longest.String())
			return nil
		}
	}
}

// enough reports whether any rank wants to stop.
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
	name   string // name, and when it happens
	column string // column of docs/RELIABILITY.md
	row    int
	how    string // argument for the child
	count  int
	cut    bool                           // the cable is cut; ranks run in network namespaces
	strike func(t *testing.T, victim int) // does it to the victim's process
	says   string                         // what the error of every live rank contains; "": no error
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

// faults are all columns. "Before": the victim has no operation in flight, and the others wait for it. "During": it is inside its
// operations of so many elements, which take long enough for it to happen.
func faults(during int) []fault {
	return []fault{
		{name: "killed before", column: "killed", row: 13, how: "before", count: 1000, strike: signal(syscall.SIGKILL),
			says: "closed the connection", bound: time.Second},
		{name: "killed during", column: "killed", row: 13, how: "during", count: during, strike: signal(syscall.SIGKILL),
			says: "closed the connection", bound: time.Second},
		{name: "stopped before", column: "stopped", row: 14, how: "before", count: 1000, strike: signal(syscall.SIGSTOP), says: "no progress",
			bound: stopBound},
		{name: "stopped during", column: "stopped", row: 14, how: "during", count: during, strike: signal(syscall.SIGSTOP), says: "no progress",
			bound: stopBound},
		{name: "cable cut", column: "cable cut", row: 14, how: "during", count: 1000, cut: true, says: "no progress", bound: stopBound},
		{name: "late", column: "late", how: "late", count: 1000},
		{name: "slow", column: "slow", how: "during", count: 50_000, strike: stutter},
	}
}

// TestEveryOperation combines every operation with every fault, on every engine for processes, because only processes can be killed and
// stopped. Cables are between hosts. The short form tests one column for one operation on each engine.
func TestEveryOperation(t *testing.T) {
	long, during := reliability.Long(t), 150_000
	of := map[string]string{"allreduce": "tcp", "send": "shm"}
	if long {
		during = 400_000
	}
	for engine, env := range engines {
		for _, f := range faults(during) {
			if !long && f.name != "killed during" || f.cut && engine != "tcp" {
				continue
			}
			t.Run(engine+" "+f.name, func(t *testing.T) {
				for i, op := range disttest.Operations() {
					if !long && of[op.Name] != engine {
						continue
					}
					t.Run(op.Name, func(t *testing.T) {
						t.Parallel()
						f.cell(t, engine, env, op.Name, i%3, matrixTimeout)
					})
				}
			})
		}
	}
}

func TestLongEveryOperation(t *testing.T) { reliability.AsLong(t, TestEveryOperation) }

// TestLongEveryOperationOnGoroutines has a late and a slow rank in every operation. Goroutines cannot be killed or stopped.
func TestLongEveryOperationOnGoroutines(t *testing.T) {
	reliability.SkipUnlessLong(t)
	for _, how := range []string{"late", "slow"} {
		t.Run(how, func(t *testing.T) {
			for i, op := range disttest.Operations() {
				t.Run(op.Name, func(t *testing.T) {
					t.Parallel()
					lines := make(chan string, 6)
					m := matrixRank{op: op.Name, how: how + " and well", victim: i % 3, count: 1000, say: func(line string) { lines <- line }}
					require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 3, Exact: true, Threads: 1, Timeout: matrixTimeout}, m.run))
					close(lines)
					for line := range lines {
						if line != "ready" {
							endedWell(t, op.Name, how, "local", strings.TrimPrefix(line, "ended: "))
						}
					}
				})
			}
		})
	}
}

// endedWell checks the end of a rank that the fault must not disturb.
func endedWell(t *testing.T, op, column, engine, end string) {
	longest, well := strings.CutPrefix(end, "well, ")
	took, err := time.ParseDuration(longest)
	if assert.True(t, well && err == nil, end) {
		t.Log(reliability.Cell{Op: op, Fault: column, Engine: engine, Took: took})
	}
}

// cell runs a job of three ranks that repeats one operation, makes the fault happen to the victim, and checks what the others print. A rank
// that gets no processor for so long is named rightly, too: then the cell is tried again with more patience.
func (f *fault) cell(t *testing.T, engine, env, op string, victim int, patience time.Duration) {
	var hosts []*netns.Host
	if f.cut {
		hosts = netns.New(t, 3)
	}
	how := f.how
	if f.says == "" {
		how += " and well"
	}
	spec := fmt.Sprintf("DIST_TEST_CHILD=matrix:%s,%s,%d,%d", op, how, victim, f.count)
	j := startJob(t, 3, hosts, 29_500, spec, env, "RINGO_TIMEOUT="+patience.String())
	for _, p := range j.ranks { // messages to a rank may arrive before it waits for the first one
		p.await(t, "ready")
	}
	switch {
	case f.cut:
		hosts[victim].Cut()
	case f.strike != nil:
		f.strike(t, j.ranks[victim].cmd.Process.Pid)
	}
	struck, starved := time.Now(), false // a cut waits while the namespaces of other tests come and go
	for rank, p := range j.ranks {
		if f.says == "" {
			end, _ := p.await(t, "ended: ")
			endedWell(t, op, f.column, engine, end)
			continue
		}
		if rank == victim {
			continue
		}
		end, at := p.await(t, "ended: ")
		named := strings.Contains(end, fmt.Sprintf("rank %d", victim))
		if starved = starved || !named && f.strike != nil && patience == matrixTimeout; starved {
			continue
		}
		assert.True(t, named, "rank %d: %s", rank, end)
		assert.Regexp(t, `(`+says(op)+`) seq \d+ of group world`, end, "rank %d", rank)
		assert.Contains(t, end, f.says, "rank %d", rank)
		reliability.Took(t, f.row, engine, f.bound+patience-matrixTimeout, at.Sub(struck))
		t.Log(reliability.Cell{Op: op, Fault: f.column, Engine: engine, Took: at.Sub(struck)})
	}
	if t.Failed() {
		t.Log(j.text())
	}
	if f.says != "" {
		_ = j.ranks[victim].cmd.Process.Kill() // it may be stopped, or without a network
	}
	for _, p := range j.ranks {
		<-p.done
	}
	if starved {
		f.cell(t, engine, env, op, victim, 4*matrixTimeout)
	}
}

// says is the name of an operation in an error.
func says(op string) string {
	if op == "send" || op == "recv" || op == "batch" {
		return "send|recv|batch"
	}
	return op
}
