//go:build unix

package nccl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/nccl"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// TestMain runs this binary as one rank of a job when a test below started it.
func TestMain(m *testing.M) {
	if how := os.Getenv("NCCL_TEST_CHILD"); how != "" {
		if err := child(how); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	reliability.RunMost(m, 8)
}

// programs are what a rank does that is a process.
var programs = map[string]func(ctx context.Context, r *dist.Rank, arg int) error{
	"operations": operations, "mismatch": mismatch, "die": forever, "rebuild": carryOn,
	"groups": groups, "hurry": hurry, "split": cutUp, "absent": absent,
}

func child(how string) error {
	name, text, _ := strings.Cut(how, " ")
	arg, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	device, err := dist.Devices("cuda")
	if err != nil {
		return err
	}
	return dist.Run(context.Background(), dist.Config{Threads: 1, Device: device}, func(ctx context.Context, r *dist.Rank) error {
		if r.Engine() != "nccl" {
			return fmt.Errorf("the engine is %s", r.Engine())
		}
		if err := programs[name](ctx, r, arg); err != nil {
			return err
		}
		fmt.Println("well")
		return nil
	})
}

// operations checks the result of every operation, with each rank as the special one if all is 1.
func operations(_ context.Context, r *dist.Rank, all int) error {
	for i, op := range disttest.Operations() {
		for k, count := range []int{0, 1, 1000, 100_001} {
			if all == 0 && k == 3 && i%2 == 0 {
				continue
			}
			for peer := range r.World.Size() {
				if all == 0 && peer != i%r.World.Size() {
					continue
				}
				if err := op.Run(r.World, peer, count); err != nil {
					return fmt.Errorf("%s, %d elements, rank %d is special: %w", op.Name, count, peer, err)
				}
			}
		}
	}
	return nil
}

// groups come and go, with their communicators, whose connections are closed.
func groups(ctx context.Context, r *dist.Rank, count int) error {
	before := 0
	for i := range count {
		g := r.World.With()
		if err := g.AllReduce(tensor.New(r.Device, tensor.Float32, 100), dist.Sum).WaitHost(ctx); err != nil {
			return err
		}
		if i == 0 {
			before = descriptors()
		}
		if err := g.Close(); err != nil {
			return err
		}
	}
	for end := time.Now().Add(20 * time.Second); descriptors() > before; <-time.After(time.Millisecond) { // descriptors of all ranks
		if time.Now().After(end) {
			return fmt.Errorf("%d descriptors are open, %d with the first group", descriptors(), before)
		}
	}
	return nil
}

// cutUp splits the world twice. splits is how often NCCL does it: a library that has no ncclCommSplit makes communicators by ids.
func cutUp(_ context.Context, r *dist.Rank, splits int) error {
	lib, err := nccl.Load()
	if err != nil || lib.HasSplit() != (splits > 0) {
		return errors.Join(err, fmt.Errorf("ncclCommSplit is there: %v", lib.HasSplit()))
	}
	if err := reduce(r, 10, dist.Sum); err != nil {
		return err
	}
	me := r.World.Rank()
	pair, err := r.World.Split(min(me, 1), -me)
	if err != nil {
		return err
	}
	color := me
	if me == 1 {
		color = -1
	}
	alone, err := r.World.Split(color, 0)
	if err != nil {
		return err
	}
	if alone != nil {
		err = ranksOf(r, alone, float32(me))
	}
	if err := errors.Join(err, ranksOf(r, pair, [][]float32{{0}, {2, 1}, {2, 1}}[me]...)); err != nil {
		return err
	}
	if err := reduce(r, 10, dist.Sum); err != nil { // it comes after the splits
		return err
	}
	if splits > 0 && int(emu.CountNCCL().Splits) != splits {
		return fmt.Errorf("%d splits, not %d", emu.CountNCCL().Splits, splits)
	}
	return r.World.Barrier().Wait()
}

// absent has a rank that does not come to the first operation of a group whose communicator is there.
func absent(_ context.Context, r *dist.Rank, who int) error {
	short := r.World.With(dist.Timeout(time.Second))
	if err := short.AllReduce(tensor.New(r.Device, tensor.Float32, 10), dist.Sum).WaitHost(context.Background()); err != nil {
		return err
	}
	g, err := short.Split(0, 0)
	if err != nil {
		return err
	}
	if r.World.Rank() == who {
		return failed(g)
	}
	return g.AllReduce(tensor.New(r.Device, tensor.Float32, 10), dist.Sum).WaitHost(context.Background())
}

func descriptors() int {
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names)
}

// hurry makes rank 0, which made the id, end as soon as it has its own part of a large result.
func hurry(_ context.Context, r *dist.Rank, count int) error {
	x := tensor.New(r.Device, tensor.Float32, count)
	if r.World.Rank() == 0 {
		tensor.Copy(x, tensor.FromSlice(slices.Repeat([]float32{3}, count), count))
	}
	if err := r.World.Broadcast(x, 0).Wait(); err != nil || r.World.Rank() == 0 {
		return err
	}
	if at := slices.IndexFunc(tensor.Data[float32](tensor.ToHost(x)), func(v float32) bool { return v != 3 }); at >= 0 {
		return fmt.Errorf("element %d did not come", at)
	}
	return nil
}

func mismatch(_ context.Context, r *dist.Rank, _ int) error {
	if err := reduce(r, 10, dist.Sum); err != nil {
		return err
	}
	return reduce(r, 10+r.World.Rank(), dist.Sum)
}

// forever runs until the victim is killed, in the middle of what it has queued.
func forever(_ context.Context, r *dist.Rank, victim int) error {
	x := tensor.New(r.Device, tensor.Float32, 10_000)
	for step := 0; ; step++ {
		if err := r.World.AllReduce(x, dist.Max).Wait(); err != nil {
			return err
		}
		if step == 20 && r.World.Rank() == victim {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
}

// carryOn is what the others do then: they make new communicators.
func carryOn(ctx context.Context, r *dist.Rank, victim int) error {
	if forever(ctx, r, victim) == nil {
		return errors.New("nobody died")
	}
	g, err := r.World.Rebuild(ctx)
	if err != nil {
		return err
	}
	for _, op := range disttest.Operations() {
		if err := op.Run(g, 0, 100); err != nil {
			return fmt.Errorf("%s after a death: %w", op.Name, err)
		}
	}
	return nil
}

// controls are the engines with which processes of a host connect.
var controls = map[string]string{"tcp": "RINGO_SHM=0", "shm": "RINGO_SHM=1"}

// processes starts n ranks, each a process with n GPUs, and returns their output.
func processes(t *testing.T, n int, how, control string, env ...string) []string {
	emu.Start(t, emu.Config{Devices: n})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmds, outs := disttest.StartProcesses(ctx, t, n,
		append(env, "NCCL_TEST_CHILD="+how, fmt.Sprint("EMU_DEVICES=", n), "RINGO_TIMEOUT=60s", control)...)
	text := make([]string, n)
	for r, c := range cmds {
		_ = c.Wait() // the text has the result
		text[r] = string(bytes.TrimSpace(outs[r].Bytes()))
	}
	return text
}

// Ranks that are processes, as in a real job: package dist chooses the devices and NCCL.
func TestProcesses(t *testing.T) {
	jobs, how := map[string]int{"shm": 3}, "operations 0"
	if reliability.Long(t) {
		jobs["tcp"], how = 2, "operations 1"
	}
	for name, n := range jobs {
		t.Run(fmt.Sprint(n, " over ", name), func(t *testing.T) {
			for r, text := range processes(t, n, how, controls[name]) {
				assert.Equal(t, "well", text, "rank %d", r)
			}
		})
	}
}

func TestLongProcesses(t *testing.T) { reliability.AsLong(t, TestProcesses) }

func TestFirstProcessEndsEarly(t *testing.T) {
	how := "hurry 1000000"
	if reliability.Long(t) {
		how = "hurry 4000000"
	}
	for r, text := range processes(t, 3, how, controls["shm"]) {
		assert.Equal(t, "well", text, "rank %d", r)
	}
}

func TestLongFirstProcessEndsEarly(t *testing.T) { reliability.AsLong(t, TestFirstProcessEndsEarly) }

func TestGroupsOfProcesses(t *testing.T) {
	how := "groups 5"
	if long(t) {
		how = "groups 20"
	}
	for r, text := range processes(t, 3, how, controls["shm"]) {
		assert.Equal(t, "well", text, "rank %d", r)
	}
}

func TestLongGroupsOfProcesses(t *testing.T) { reliability.AsLong(t, TestGroupsOfProcesses) }

// With NCCL, and with a library that has no ncclCommSplit.
func TestSplitOfProcesses(t *testing.T) {
	emu.Start(t, emu.Config{})
	library, err := os.ReadFile(emu.Library(t, "libnccl.so"))
	require.NoError(t, err)
	without := bytes.ReplaceAll(library, []byte("ncclCommSplit\x00"), []byte("another_name_\x00"))
	require.NotEqual(t, library, without)
	path := filepath.Join(t.TempDir(), "libnccl.so.2")
	require.NoError(t, os.WriteFile(path, without, 0o755))
	for how, env := range map[string][]string{"split 2": nil, "split 0": {"RINGO_NCCL_LIB=" + path}} {
		for r, text := range processes(t, 3, how, controls["shm"], env...) {
			assert.Equal(t, "well", text, "rank %d, %s", r, how)
		}
	}
}

// The first call of a group waits on the host, between processes too.
func TestAbsentProcess(t *testing.T) {
	ranks := 1
	if reliability.Long(t) {
		ranks = 3
	}
	for who := range ranks {
		t.Run(fmt.Sprint(who), func(t *testing.T) {
			t.Parallel()
			for r, text := range processes(t, 3, fmt.Sprint("absent ", who), controls["shm"]) {
				assert.Regexp(t, fmt.Sprintf(
					`allreduce seq 1 of group world/1/1\[0\]: rank %d did not arrive within 1s: in a call of NCCL, or of the driver, shape float32\[10\]`,
					who),
					text, "rank %d", r)
			}
		})
	}
}

func TestLongAbsentProcess(t *testing.T) { reliability.AsLong(t, TestAbsentProcess) }

func TestProcessesMismatch(t *testing.T) {
	for _, text := range processes(t, 2, "mismatch 0", controls["shm"]) {
		assert.Contains(t, text, "allreduce seq 2 of group world: count 10 (rank 0) vs 11 (rank 1)")
	}
}

// The others name a process that dies, also if it made the id. They can continue. In the short form, rank 0 dies, and they do one of the
// two, in turns.
func TestProcessDies(t *testing.T) {
	victims := 1
	if reliability.Long(t) {
		victims = 2
	}
	for name, env := range controls {
		for victim := range victims {
			t.Run(fmt.Sprintf("rank %d over %s", victim, name), func(t *testing.T) {
				continues := (name == "shm") == (victim == 0)
				begin := time.Now()
				if !reliability.Long(t) && continues {
					rebuilt(t, victim, env)
					return
				}
				for r, text := range processes(t, 3, fmt.Sprint("die ", victim), env) {
					if r != victim {
						assert.Regexp(t, fmt.Sprintf(`error: rank %d \(host .*, pid \d+\): allreduce seq \d+ of group world`, victim), text)
					}
				}
				assert.Less(t, time.Since(begin), 20*time.Second+reliability.Slack, "less than half the timeout")
				if reliability.Long(t) {
					rebuilt(t, victim, env)
				}
			})
		}
	}
}

func TestLongProcessDies(t *testing.T) { reliability.AsLong(t, TestProcessDies) }

// rebuilt requires that the others continue without a process that dies.
func rebuilt(t *testing.T, victim int, env string) {
	for r, text := range processes(t, 3, fmt.Sprint("rebuild ", victim), env) {
		if r != victim {
			assert.True(t, strings.HasSuffix(text, "well"), "rank %d: %s", r, text)
		}
	}
}
