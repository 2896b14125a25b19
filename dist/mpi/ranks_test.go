package mpi_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/mpi"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

func init() {
	children["hello"] = hello
	children["load"] = child(underLoad)
	children["groups"] = child(manyGroups)
	for name, fn := range mistakes {
		children[name] = child(fn)
	}
}

// child runs fn as one rank.
func child(fn func(r *dist.Rank) error) func() error {
	return func() error {
		cfg := dist.Config{Backend: "mpi", Threads: 1, Log: io.Discard, Timeout: time.Second}
		return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error { return fn(r) })
	}
}

func hello() error {
	e, err := mpi.Join(time.Minute, 0)
	if err != nil {
		return err
	}
	if n := runtime.GOMAXPROCS(0); n < 2 {
		return fmt.Errorf("GOMAXPROCS is %d", n)
	}
	fmt.Printf("rank %d of %d: %v\n", e.Rank(), e.Size(), e)
	if err := e.SendNowhere(); err == nil || !strings.Contains(err.Error(), "MPI_Isend: error ") {
		return fmt.Errorf("a message to nobody: %w", err) // by default MPI ends the process
	}
	e.Finish()
	return e.Close()
}

func TestHello(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		out := succeeds(t, n, "hello", "GOMAXPROCS=1")
		found := lines(out, "rank ")
		require.Len(t, found, n, out)
		for _, line := range found {
			assert.Regexp(t, fmt.Sprintf(`^rank \d of %d: .*(MPICH|Open MPI|Intel).*ABI\), MPI_THREAD_SERIALIZED, %d ranks$`, n, n), line)
		}
	}
}

// ones returns count elements.
func ones(r *dist.Rank, count int) tensor.Tensor { return tensor.New(r.Device, tensor.Float32, count) }

// mistakes are programs in which something goes wrong. Each rank prints the error that it gets, and goes on if MPI can.
var mistakes = map[string]func(r *dist.Rank) error{
	"counts": func(r *dist.Rank) error {
		return r.World.AllReduce(ones(r, 10+2*min(1, r.World.Rank())), dist.Sum).Wait()
	},
	"kinds": func(r *dist.Rank) error {
		if r.World.Rank() == 2 {
			return r.World.Broadcast(ones(r, 10), 0).Wait()
		}
		return r.World.AllReduce(ones(r, 10), dist.Sum).Wait()
	},
	"halves": func(r *dist.Rank) error { // the same for operations of our algorithms
		return r.World.AllReduce(tensor.New(r.Device, tensor.BFloat16, 10+r.World.Rank()), dist.Avg).Wait()
	},
	"rows": func(r *dist.Rank) error {
		n := r.World.Size()
		send, recv := make([]int, n), make([]int, n)
		switch r.World.Rank() {
		case 0:
			send[1] = 3
		case 1:
			recv[0] = 4
		}
		return r.World.AllToAllV(ones(r, recv[0]), ones(r, send[1]), recv, send).Wait()
	},
	"left": func(r *dist.Rank) error {
		if r.World.Rank() == 1 {
			return nil
		}
		return r.World.AllReduce(ones(r, 10), dist.Sum).Wait()
	},
	"fails": func(r *dist.Rank) error {
		if r.World.Rank() == 1 {
			return errors.New("the disk is full")
		}
		return r.World.AllReduce(ones(r, 10), dist.Sum).Wait()
	},
	"late": func(r *dist.Rank) error {
		if r.World.Rank() == 0 {
			return r.World.Reduce(ones(r, 10), dist.Sum, 0).Wait()
		}
		return r.World.With(dist.Timeout(20 * time.Second)).Barrier().Wait() // the failure of the world ends it
	},
	"stopped": func(r *dist.Rank) error {
		for i := 0; ; i++ {
			if err := r.World.AllReduce(ones(r, 1<<20), dist.Sum).Wait(); err != nil {
				return err
			}
			if r.World.Rank() == 2 && i == 5 {
				fmt.Println("stopped", os.Getpid())
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			}
		}
	},
	"killed": func(r *dist.Rank) error {
		for i := 0; ; i++ {
			if err := r.World.AllReduce(ones(r, 1<<10), dist.Sum).Wait(); err != nil {
				return err
			}
			if r.World.Rank() == 2 && i == 5 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
	},
	"rebuild": func(r *dist.Rank) error {
		r.World.Abort(errors.New("on purpose"))
		_, err := r.World.Rebuild(context.Background())
		return err
	},
	"peers": func(r *dist.Rank) error { // point to point
		if r.World.Rank() == 0 {
			if err := r.World.Send(ones(r, 10), 1, 7).Wait(); err != nil {
				return err
			}
		}
		if r.World.Rank() == 1 {
			return r.World.Recv(ones(r, 12), 0, 7).Wait()
		}
		return r.World.Barrier().Wait()
	},
	"algorithm": func(r *dist.Rank) error {
		return r.World.With(dist.Algo("mpi")).AllReduce(tensor.New(r.Device, tensor.BFloat16, 10), dist.Sum).Wait()
	},
}

// What goes wrong is an error on all ranks that live, with the texts of the other engines, and ends the job.
func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		texts []string
		bound time.Duration
	}{
		"counts":    {[]string{"allreduce seq 1 of group world: count 10 (rank 0) vs 12 (rank ", "float32[10]"}, 0},
		"kinds":     {[]string{"allreduce seq 1 (rank ", "broadcast seq 1 (rank 2)"}, 0},
		"halves":    {[]string{"allreduce seq 1 of group world: count 1", "bfloat16[1"}, 0},
		"rows":      {[]string{"rank 0 sends 3 rows to rank 1, which expects 4"}, 0},
		"left":      {[]string{"rank 1 (host ", "allreduce seq 1 of group world: has left the job: it ran fewer operations"}, 0},
		"fails":     {[]string{"rank 1: the disk is full"}, 0},
		"late":      {[]string{"reduce seq 1 of group world: ranks 1-3 did not arrive within 1s"}, 2 * time.Second},
		"rebuild":   {[]string{"engine mpi cannot"}, 0},
		"peers":     {[]string{"count 10 (rank 0) vs 12 (rank 1)"}, 0},
		"algorithm": {[]string{"MPI has no allreduce of bfloat16 by sum"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			out, err := run(t, 4, name)
			require.Error(t, err, out)
			errs := lines(out, "error:")
			require.NotEmpty(t, errs, out) // mpiexec may end the others when the first has ended
			for _, e := range errs {
				for _, text := range c.texts {
					assert.Contains(t, e, text)
				}
			}
			assert.Less(t, time.Since(began), c.bound+5*time.Second+reliability.Slack)
		})
	}
}

// A rank that is stopped while data moves: the others cannot end what MPI has begun. They name the rank, and end.
func TestStoppedRank(t *testing.T) {
	began := time.Now()
	out, err := run(t, 3, "stopped")
	require.Error(t, err, out)
	for _, line := range lines(out, "stopped ") {
		if pid, err := strconv.Atoi(strings.TrimPrefix(line, "stopped ")); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	errs := lines(out, "error:")
	require.NotEmpty(t, errs, out)
	for _, e := range errs {
		assert.Contains(t, e, "allreduce seq ")
		assert.Contains(t, e, "rank 2: no progress within 1s")
	}
	assert.Less(t, time.Since(began), 6*time.Second+reliability.Slack)
}

// mpiexec ends a job when one of its processes is killed, and says which.
func TestKilledRank(t *testing.T) {
	out, err := run(t, 3, "killed")
	require.Error(t, err, out)
	assert.Contains(t, out, "9")
}

// underLoad reduces while goroutines must be stopped for the garbage collector (SIGURG) and are sampled (SIGPROF).
func underLoad(r *dist.Rank) error {
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		for x := 1; ; x++ {
			select {
			case <-stop:
				return
			default:
			}
			for i := range 10_000_000 { // no call, so only a signal stops it
				x ^= i
			}
			_ = make([]byte, 1<<20+x&1)
		}
	}()
	for k := range 40 {
		x := tensor.FromSlice(slices.Repeat([]float32{float32(k)}, 50_000), 50_000)
		if err := r.World.AllReduce(x, dist.Sum).Wait(); err != nil {
			return err
		}
		if got, want := tensor.Floats(x)[k], float64(k*r.World.Size()); got != want {
			return fmt.Errorf("sum %d is %v, want %v", k, got, want)
		}
	}
	close(stop)
	pprof.StopCPUProfile()
	if profile.Len() < 500 {
		return fmt.Errorf("a profile of %d bytes: no samples", profile.Len())
	}
	fmt.Println("well")
	return nil
}

func TestSignalsUnderLoad(t *testing.T) {
	out := succeeds(t, 2, "load", "RINGO_TIMEOUT=20s")
	require.Len(t, lines(out, "well"), 2, out)
}

// manyGroups makes the communicators of some groups while our algorithms run in others.
func manyGroups(r *dist.Rank) error {
	for round := range 20 {
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			g := r.World.With(dist.Name(fmt.Sprint(round, " ", i)))
			wg.Go(func() {
				for range 3 {
					errs[i] = cmp.Or(errs[i], g.AllReduce(tensor.New(r.Device, tensor.BFloat16, 100), dist.Avg).Wait())
				}
				errs[i] = cmp.Or(errs[i], g.Close())
			})
		}
		if wg.Wait(); errors.Join(errs...) != nil {
			return errors.Join(errs...)
		}
	}
	fmt.Println("well")
	return nil
}

// While MPI makes a communicator, no message can begin. All that wait for that go on afterwards.
func TestManyGroups(t *testing.T) {
	out := succeeds(t, 3, "groups", "RINGO_TIMEOUT=20s")
	require.Len(t, lines(out, "well"), 3, out)
}

// What is wrong with the library or the launcher is said in one sentence.
func TestWrongUse(t *testing.T) {
	alone := []string{"RINGO_RANK=", "PMI_RANK=", "PMI_SIZE="}
	for name, c := range map[string]struct {
		env  []string
		text string
	}{
		"absent": {[]string{"PMI_RANK=0", "PMI_SIZE=1", "RINGO_MPI_LIB=/nowhere/libmpi_abi.so.1"},
			"RINGO_MPI_LIB is set: library not found: MPI"},
		"no MPI": {[]string{"PMI_RANK=0", "PMI_SIZE=1", "RINGO_MPI_LIB=libc.so.6"}, "has no symbol MPI_Get_library_version"},
		"other mpirun": {[]string{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"},
			"sees 1 of the 2 ranks: the mpiexec that started them belongs to another library"},
		"no mpiexec": {nil, "RINGO_BACKEND=mpi (ringo): no launcher started this process; start it with mpiexec"},
		"ringo run": {[]string{"RINGO_RANK=0", "RINGO_WORLD_SIZE=1"},
			"RINGO_BACKEND=mpi (ringo): ringo starts no MPI job; start the ranks with mpiexec"},
		"other": {[]string{"RINGO_BACKEND=gloo"}, "RINGO_BACKEND=gloo (ringo): the only value is mpi"},
	} {
		t.Run(name, func(t *testing.T) {
			job(t, 1, nil) // skips
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(append(append(os.Environ(), alone...), childEnv+"=counts"), c.env...)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s", out)
			errs := lines(string(out), "error:")
			require.Len(t, errs, 1, "%s", out)
			assert.Contains(t, errs[0], c.text)
			if name == "other mpirun" {
				assert.Regexp(t, `MPICH|Open MPI|Intel`, errs[0])
			}
		})
	}
}
