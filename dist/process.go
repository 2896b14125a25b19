package dist

import (
	"context"
	"errors"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/dist/mpi"
	"github.com/ringo-ml/ringo/dist/tcp"
)

// blamed returns whether the failure that rank saw began there, and on which rank it began.
func blamed(err error, rank int) (launch.Kind, int) {
	var e *Error
	if errors.As(err, &e) && e.Rank >= 0 && e.Rank != rank {
		return launch.Echo, e.Rank
	}
	return launch.Primary, rank
}

var errLauncherLost = errors.New("the launcher has ended")

// runProcess runs fn as the rank that env says.
func runProcess(ctx context.Context, cfg Config, env launch.Env, worker *launch.Worker, fn func(ctx context.Context, r *Rank) error) error {
	beside := max(env.LocalSize, 1)
	cfg.defaults(beside)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-worker.Lost():
			cancel(errLauncherLost)
		case <-ctx.Done():
		}
	}()
	e, err := join(ctx, cfg, env)
	if err != nil {
		return err
	}
	return runEngine(ctx, cfg, e, place{env.Rank, env.Size, env.LocalRank, beside}, func(r *Rank) {
		r.worker, r.generation = worker, env.Generation
		r.c.tellLost = worker.Without
		if worker != nil {
			r.c.tellLate = worker.Late
			worker.Describe(r.state, r.work)
		}
		r.watch(ctx, worker)
	}, fn)
}

// RunEngine runs fn as one rank of size. Its engine has joined the other ranks, which run elsewhere; `beside` ranks, with this one, share
// the host. Run uses it in a process that a launcher started. It closes the engine.
func RunEngine(ctx context.Context, cfg Config, e backend.Engine, rank, size, beside int,
	fn func(ctx context.Context, r *Rank) error) error {
	cfg.defaults(beside)
	return runEngine(ctx, cfg, e, place{rank, size, rank % max(beside, 1), beside}, func(*Rank) {}, fn)
}

func runEngine(ctx context.Context, cfg Config, e backend.Engine, at place, prepare func(r *Rank),
	fn func(ctx context.Context, r *Rank) error) error {
	j := &job{cfg: cfg}
	if err := j.join(e, at); err != nil {
		return errors.Join(err, e.Close())
	}
	prepare(j.ranks[0])
	return j.runAll(ctx, fn)
}

// Progress tells the launcher that this rank has completed a step. Steps count from 0 over all restarts of the job. ringo run
// -max-restarts limits how often a job that fails is started again; when a job gets further than ever before, the count begins again.
// Call it on all ranks (rank 0's counts) after each step, or after each checkpoint. It costs a few microseconds, and does nothing without
// such a launcher.
func (r *Rank) Progress(step int) {
	if r.c.world.Load().Rank() == 0 {
		_ = r.worker.Progress(step) // a launcher that has ended has ended the job, too
	}
}

// Generation is the number of the current start of the job, from 1. If it is more than 1, the job was restarted, and the program should
// resume from its checkpoint. It is 0 if the launcher does not tell.
func (r *Rank) Generation() int { return r.generation }

// makers make the engines for ranks that are processes. The first one that can serve a job is used.
var makers = []backend.Maker{mpi.Maker, local.Maker, tcp.Maker}

// join connects to the other ranks and returns the engine.
func join(ctx context.Context, cfg Config, env launch.Env) (backend.Engine, error) {
	return backend.Open(ctx, makers, &backend.Job{Rank: env.Rank, Size: env.Size, Source: env.Source, Name: env.Job, Backend: env.Backend,
		Addr: env.Addr, AddrFrom: env.AddrFrom, Secret: env.Secret, Generation: env.Generation, Bind: env.Bind, Ports: env.Ports,
		Plain: env.Plain, NoShared: env.NoShared, Timeout: cfg.Timeout, JoinTimeout: cfg.JoinTimeout, Listen: env.Listener})
}
