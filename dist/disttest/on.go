package disttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/tensor"
)

// LauncherFor returns what starts up to so many ranks on "goroutines", "shm" (shared memory), "tcp" (sockets), or one of Machines. The
// ranks are goroutines of this process in any case; see InProcesses.
func LauncherFor(t testing.TB, name string, ranks int) Launcher {
	t.Helper()
	switch name {
	case "goroutines":
		return dist.Run
	case "shm":
		return overTCP(false)
	case "tcp":
		return overTCP(true)
	}
	for _, m := range Machines() {
		if m.Name == name {
			return m.Start(t, ranks)
		}
	}
	t.Fatalf("ranks on %q: there are only goroutines, shm, tcp, and those of Machines", name)
	return nil
}

// OnRanks runs fn on goroutine ranks.
func OnRanks(ranks int, fn func(r *dist.Rank) error) error {
	cfg := dist.Config{Ranks: ranks, Threads: 1, Timeout: time.Minute, Log: io.Discard}
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error { return fn(r) })
}

// OK ends a rank that cannot go on. Run, and all that starts ranks here, returns the error.
func OK(err error) {
	if err != nil {
		panic(&tensor.Failure{Op: "rank", Err: err})
	}
}

// Must is OK for a call that returns something.
func Must[T any](x T, err error) T {
	OK(err)
	return x
}

// EachFails requires that fn returns an error that contains text, or panics with it, on each of so many goroutine ranks. A rank that fails
// does not end the others.
func EachFails(t testing.TB, ranks int, text string, fn func(r *dist.Rank) error) {
	t.Helper()
	errs := make([]error, ranks)
	require.NoError(t, OnRanks(ranks, func(r *dist.Rank) error {
		i := r.World.Rank()
		if failure := tensor.Try(func() { errs[i] = fn(r) }); failure != nil {
			errs[i] = failure
		}
		return nil
	}))
	for rank, err := range errs {
		require.ErrorContains(t, err, text, "rank %d", rank)
	}
}

// leaving is an engine whose rank ends on its own, as ranks that are processes do.
type leaving struct {
	*tcp.Engine
	ended *sync.WaitGroup
}

func (l leaving) Close() error {
	l.ended.Go(func() { l.Engine.Close() })
	return nil
}

// overTCP connects ranks through 127.0.0.1; without noShared, they share memory.
func overTCP(noShared bool) Launcher {
	return func(ctx context.Context, cfg dist.Config, fn func(ctx context.Context, r *dist.Rank) error) error {
		l := Must(net.Listen("tcp", "127.0.0.1:0"))
		secret := Must(tcp.ParseSecret(tcp.NewSecret()))
		engines, errs := make([]backend.Engine, cfg.Ranks), make([]error, cfg.Ranks)
		var joining, ended sync.WaitGroup
		for r := range engines {
			c := tcp.Config{Rank: r, Size: cfg.Ranks, Addr: l.Addr().String(), Secret: secret, NoShared: noShared,
				Timeout: time.Minute, JoinTimeout: 20 * time.Second}
			if r == 0 {
				c.Listener = l
			}
			joining.Go(func() {
				e, err := tcp.Join(ctx, c)
				engines[r], errs[r] = leaving{e, &ended}, err
			})
		}
		joining.Wait()
		OK(errors.Join(errs...))
		defer ended.Wait()
		return dist.RunEngines(ctx, cfg, engines, fn)
	}
}

const trainingEnv = "RINGO_TEST_TRAINING"

// Main is the TestMain of tests that call InProcesses. In a process that InProcesses started, it runs this rank's part of the training.
func Main[S any](m *testing.M, training func(spec S) Training) {
	text := os.Getenv(trainingEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var spec S
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		var res Result
		if res, err = training(spec).Try(); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(res)
		} else {
			err = errors.New(res.Explain(err))
		}
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// InProcesses runs the training that Main makes of spec, with each rank in a process of its own. env is added to their environment;
// RINGO_SHM=0 makes them use sockets.
func InProcesses[S any](t testing.TB, ranks int, spec S, env ...string) (res Result) {
	t.Helper()
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	out := Processes(t, ranks, append(env, trainingEnv+"="+string(text), "RINGO_TIMEOUT=20s")...)
	require.NoError(t, json.Unmarshal(out[0], &res), "%s", out[0])
	res.layout = fmt.Sprintf("%d processes %s %v", ranks, text, env)
	return res
}
