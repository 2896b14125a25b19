//go:build unix

package dist_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/ports"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// guardChild is a rank of a job whose rank 2 is stopped in the middle of large all-reduces. When the others have failed, they fill the
// buffer with a pattern, let rank 2 continue, and check that the pattern stays.
func guardChild() error {
	return dist.Run(context.Background(), dist.Config{Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 4<<20)
		var err error
		for step := 0; err == nil; step++ {
			if step == 3 {
				fmt.Println("ready")
			}
			err = r.World.AllReduce(x, dist.Sum).Wait()
		}
		fmt.Println("ended:", err)
		data := tensor.Data[float32](x)
		for i := range data {
			data[i] = 42
		}
		fmt.Println("guarded")
		var line string
		if r.World.Rank() != 2 { // until the test says that rank 2 has ended
			_, _ = fmt.Scanln(&line)
		}
		for i := range data {
			if data[i] != 42 {
				return fmt.Errorf("element %d was written to", i)
			}
		}
		fmt.Println("untouched")
		return nil
	})
}

// A stopped rank that continues after the others have failed changes no memory of theirs, and gets the error that it is too late.
func TestLongStoppedRankGoesOn(t *testing.T) {
	reliability.SkipUnlessLong(t)
	for engine, env := range engines {
		t.Run(engine, func(t *testing.T) {
			j := startJob(t, 3, nil, 0, "DIST_TEST_CHILD=guard", env, "RINGO_TIMEOUT="+matrixTimeout.String())
			j.ranks[2].await(t, "ready")
			signal(syscall.SIGSTOP)(t, j.ranks[2].cmd.Process.Pid)
			for _, r := range []int{0, 1} {
				end, _ := j.ranks[r].await(t, "ended: ")
				assert.Contains(t, end, "rank 2")
				assert.Contains(t, end, "no progress")
				j.ranks[r].await(t, "guarded")
			}
			woken := time.Now()
			signal(syscall.SIGCONT)(t, j.ranks[2].cmd.Process.Pid)
			end, at := j.ranks[2].await(t, "ended: ")
			// Its connections may be so full of its own data that the message "generation 1 is over" has no room.
			assert.Regexp(t, `generation 1 is over|closed the connection`, end)
			reliability.Took(t, 15, engine, time.Second, at.Sub(woken))
			<-j.ranks[2].done
			for _, r := range []int{0, 1} {
				_, err := fmt.Fprintln(j.ranks[r].in, "over")
				require.NoError(t, err)
				j.ranks[r].await(t, "untouched")
			}
		})
	}
}

// Torchrun's own agent has MASTER_PORT, so the job uses the next port. If that is taken, too, the error names both.
func TestTorchrunPortTaken(t *testing.T) {
	lo := ports.Free(t, 2)
	agent, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", lo))
	require.NoError(t, err)
	defer agent.Close()
	env := []string{"DIST_TEST_CHILD=well", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(lo), "LOCAL_WORLD_SIZE=2", engines["tcp"]}
	begin := time.Now()
	j := startTorchrun(t, env)
	for r := range 2 {
		j.ranks[r].await(t, fmt.Sprintf("tcp %d of 2 ", r))
	}
	reliability.Took(t, 33, "tcp", 5*time.Second, time.Since(begin))
	next, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", lo+1))
	require.NoError(t, err)
	defer next.Close()
	j = startTorchrun(t, env)
	<-j.ranks[0].done
	for _, want := range []string{fmt.Sprint("127.0.0.1:", lo+1), "address already in use", fmt.Sprintf("MASTER_PORT=%d plus 1", lo)} {
		assert.Contains(t, j.ranks[0].text(), want)
	}
	_ = j.ranks[1].cmd.Process.Kill() // otherwise it would dial for a minute
}

// RINGO_ALGO on one rank only: the error names both algorithms and both ranks, also for an operation in which that rank only waits.
func TestAlgorithmOfOneRank(t *testing.T) {
	for engine, env := range engines {
		for _, list := range []string{"allreduce:ring", "broadcast:chain"} {
			t.Run(engine+" "+list, func(t *testing.T) {
				kind, name, _ := strings.Cut(list, ":")
				begin := time.Now()
				j := startJobWith(t, 2, nil, 0, func(rank int) []string {
					env := []string{"DIST_TEST_CHILD=matrix:" + kind + ",during,0,1000", "RINGO_TIMEOUT=10s", env}
					if rank == 1 {
						env = append(env, "RINGO_ALGO="+list)
					}
					return env
				})
				for r := range 2 {
					end, _ := j.ranks[r].await(t, "ended: ")
					for _, want := range []string{"algorithm", name, "(rank 0)", "(rank 1)"} {
						assert.Contains(t, end, want, "rank %d", r)
					}
				}
				reliability.Took(t, 24, engine, 500*time.Millisecond, time.Since(begin))
			})
		}
	}
}

// The last operations of a rank are printed when the job fails. They show what it did, and what was in flight.
func TestFlightRecorderOfProcesses(t *testing.T) {
	j := startJob(t, 2, nil, 0, "DIST_TEST_CHILD=mismatch", "RINGO_TIMEOUT=10s")
	for r := range 2 {
		<-j.ranks[r].done
		text := j.ranks[r].text()
		assert.Regexp(t, fmt.Sprintf(`rank %d: allreduce by \S+ seq 1 of group world, 4 bytes, at [\d.]+ s, took [\d.]+ µs`, r), text)
		assert.Regexp(t, fmt.Sprintf(`rank %d: allreduce by \S+ seq 2 of group world, %d bytes, at [\d.]+ s, in flight`, r, 40+4*r), text)
		assert.Equal(t, 1, strings.Count(text, "in flight"), text)
	}
}
