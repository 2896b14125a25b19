//go:build unix

package dist_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// TestMain runs this binary as one rank of a job when a test below started it.
func TestMain(m *testing.M) {
	if how := os.Getenv("DIST_TEST_CHILD"); how != "" {
		do := child
		switch how {
		case "measure":
			do = measure
		case "measuretape":
			do = measureTape
		}
		if err := do(how); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(how string) error {
	if spec, ok := strings.CutPrefix(how, "matrix:"); ok {
		return matrixChild(spec)
	}
	if spec, ok := strings.CutPrefix(how, "rebuild:"); ok {
		return rebuildChild(spec)
	}
	if spec, ok := strings.CutPrefix(how, "soak:"); ok {
		return soakChild(spec)
	}
	if how == "dropped" {
		return dist.Run(context.Background(), dist.Config{Threads: 1}, dropped)
	}
	if how == "unwaited" {
		return dist.Run(context.Background(), dist.Config{Threads: 1}, dropsWork)
	}
	if how == "guard" {
		return guardChild()
	}
	return dist.Run(context.Background(), dist.Config{Ranks: 7, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		x := tensor.FromSlice([]float32{float32(r.World.Rank() + 1)}, 1)
		if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
			return err
		}
		fmt.Println(r.Engine(), r.World.Rank(), "of", r.World.Size(), x)
		if how == "die" && r.World.Rank() == 1 {
			os.Exit(3)
		}
		if r.World.Rank() == 1 {
			switch how {
			case "fail":
				return errors.New("boom")
			case "panic":
				panic("out of luck")
			case "goexit":
				runtime.Goexit()
			}
		}
		if how == "anyone leaves" || how == "anyone dies" {
			return anyone(r, how == "anyone dies")
		}
		if how == "crashonce" {
			return crashOnce(r)
		}
		for y := r.Alloc(tensor.Float32, 1<<20); how == "forever"; {
			if err := r.World.AllReduce(y, dist.Sum).Wait(); err != nil {
				return err
			}
		}
		if how == "mismatch" {
			return r.World.AllReduce(tensor.New(r.Device, tensor.Float32, 10+r.World.Rank()), dist.Sum).Wait()
		}
		return r.World.Barrier().Wait()
	})
}

// anyone makes rank 0 wait for a message of any rank, when no rank is left that could send.
func anyone(r *dist.Rank, die bool) error {
	if r.World.Rank() == 0 {
		_, err := r.World.RecvAny(tensor.New(r.Device, tensor.Float32, 1), 0)
		return err
	}
	if die {
		os.Exit(3)
	}
	return nil
}

// processes starts n ranks as processes and returns the output of each.
func processes(t testing.TB, n int, how string) []string {
	cmds, outs := startProcesses(t, n, how)
	text := make([]string, n)
	for r, c := range cmds {
		_ = c.Wait() // the text has the result
		text[r] = outs[r].String()
	}
	return text
}

// startProcesses starts n ranks as processes, which end with the test.
func startProcesses(t testing.TB, n int, how string) ([]*exec.Cmd, []bytes.Buffer) {
	ctx, cancel := context.WithTimeout(t.Context(), soakLength(t)+time.Minute)
	t.Cleanup(cancel)
	return disttest.StartProcesses(ctx, t, n, "DIST_TEST_CHILD="+how, "RINGO_TIMEOUT=60s")
}

// The same program runs as processes: the launcher overrides Config.Ranks.
func TestProcesses(t *testing.T) {
	for engine, env := range engines {
		name, value, _ := strings.Cut(env, "=")
		t.Setenv(name, value)
		for r, text := range processes(t, 3, "well") {
			assert.Equal(t, fmt.Sprintf("%s %d of 3 float32[1] [6]\n", engine, r), text)
		}
	}
}

// A mismatch is the same error on all processes.
func TestProcessesMismatch(t *testing.T) {
	for _, text := range processes(t, 2, "mismatch") {
		assert.Contains(t, text, "allreduce seq 2 of group world: count 10 (rank 0) vs 11 (rank 1)")
	}
}

// A rank that fails or panics prints its own error with its stack, and the others print its error, not their own.
func TestProcessFails(t *testing.T) {
	for how, want := range map[string]string{
		"fail": "rank 1: boom", "panic": "rank 1: panic: out of luck", "goexit": "rank 1: runtime.Goexit",
	} {
		if how == "goexit" && !reliability.Long(t) {
			continue
		}
		for r, text := range processes(t, 3, how) {
			assert.Contains(t, text, "error: rank 1", "%s, rank %d", how, r)
			assert.Contains(t, text, want, "%s, rank %d", how, r)
			assert.NotContains(t, text, "allreduce by", "the flight recorder is for failures of groups: %s, rank %d", how, r)
			assert.Equal(t, how != "fail", strings.Contains(text, "dist_test.child"), "the stack: %s, rank %d", how, r)
		}
	}
}

func TestLongProcessFails(t *testing.T) { reliability.AsLong(t, TestProcessFails) }

// A process that dies is named by the others.
func TestProcessDies(t *testing.T) {
	text := processes(t, 3, "die")
	for _, r := range []int{0, 2} {
		// The process may have ended before the others have finished the all-reduce.
		assert.Regexp(t, `error: rank 1 \(host .*, pid \d+\): (allreduce seq 1|barrier seq 2) of group world`, text[r])
	}
}

// A rank that waits for a message of any process gets an error at once when none is left. In the short form, ranks leave one engine, and
// die on the other one.
func TestProcessesAllGone(t *testing.T) {
	for engine, env := range engines {
		name, value, _ := strings.Cut(env, "=")
		t.Setenv(name, value)
		for how, want := range map[string]string{
			"anyone leaves": `error: rank 1: nothing can arrive from any rank: ranks 1, 2 have left the job or closed the group\n`,
			"anyone dies":   `error: rank [12] \(host .*, pid \d+\): .*\n`,
		} {
			if !reliability.Long(t) && (engine == "tcp") != (how == "anyone dies") {
				continue
			}
			begin := time.Now()
			assert.Regexp(t, want, processes(t, 3, how)[0], how)
			assert.Less(t, time.Since(begin), 20*time.Second+reliability.Slack, "%s: less than half the timeout", how)
		}
	}
}

func TestLongProcessesAllGone(t *testing.T) { reliability.AsLong(t, TestProcessesAllGone) }
