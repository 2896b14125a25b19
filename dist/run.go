package dist

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/internal/ranks"
	"github.com/ringo-ml/ringo/internal/where"
	"github.com/ringo-ml/ringo/tensor"
)

// Run runs fn on every rank of a job and returns when all ranks of this process are done.
//
// If a launcher (ringo run, torchrun, Slurm, mpirun, …) started the process, the process is one rank. Run connects to the other ranks by
// the address in the environment and runs fn once. Otherwise Run makes cfg.Ranks ranks, each a goroutine with its own Device.
//
// The error is the first failure of any rank of this process: an error that fn returned, a panic with its stack, or a failed collective.
// Then Run ends the other ranks of this process: their operations and ctx fail. Ranks of other processes learn of it by their groups,
// which fail, not by ctx: they may go on after Group.Rebuild. When ctx ends, all groups are aborted.
func Run(ctx context.Context, cfg Config, fn func(ctx context.Context, r *Rank) error) error {
	if fn == nil {
		return errors.New("dist: Run's function is nil")
	}
	if err := cfg.check(); err != nil {
		return err
	}
	env, err := launch.Take(cfg.Backend)
	if err != nil {
		return fmt.Errorf("dist: %w", err)
	}
	if env.Timeout > 0 {
		cfg.Timeout = env.Timeout
	}
	if env.JoinTimeout > 0 {
		cfg.JoinTimeout = env.JoinTimeout
	}
	if env.Threads > 0 {
		cfg.Threads = env.Threads
	}
	if cfg.Device == nil {
		if cfg.Device, err = Devices(env.Device); err != nil {
			return fmt.Errorf("%w (RINGO_DEVICE)", err)
		}
	}
	if env.Source == "" {
		return runLocal(ctx, cfg, max(cfg.Ranks, 1), fn)
	}
	if cfg.Exact && cfg.Ranks != env.Size {
		return fmt.Errorf("dist: the program asks for %s, but %s started %d", ranks.Count(cfg.Ranks), env.Source, env.Size)
	}
	worker, err := launch.ConnectAgent()
	if err != nil {
		return fmt.Errorf("dist: %w", err)
	}
	err = runProcess(ctx, cfg, env, worker, fn)
	if err != nil {
		kind, rank := blamed(err, env.Rank)
		_ = worker.ReportError(kind, rank, err.Error()) // the error is returned as well
		_ = worker.ReportState()
	}
	return err
}

// runLocal runs fn on n goroutine ranks.
func runLocal(ctx context.Context, cfg Config, n int, fn func(ctx context.Context, r *Rank) error) error {
	hub := local.NewHub(n)
	engines := make([]backend.Engine, n)
	for i := range engines {
		engines[i] = hub.Engine(i)
	}
	return RunEngines(ctx, cfg, engines, fn)
}

// RunEngines runs fn once for each engine, each in a goroutine, as rank i of len(engines). Run uses it with engines of package local,
// tests use it with others. The result is that of Run.
func RunEngines(ctx context.Context, cfg Config, engines []backend.Engine, fn func(ctx context.Context, r *Rank) error) error {
	n := len(engines)
	if n == 0 {
		return errors.New("dist: no ranks: RunEngines needs an engine for each")
	}
	cfg.defaults(n)
	j := &job{cfg: cfg}
	for i, e := range engines {
		if err := j.join(e, place{rank: i, size: n, local: i, beside: n}); err != nil {
			return err
		}
	}
	warnHostCopies(engines[0])
	return j.runAll(ctx, fn)
}

// join adds a rank.
func (j *job) join(e backend.Engine, at place) error {
	r, err := newRank(j.cfg, e, at, &j.logMu)
	if err != nil {
		j.abort(err)
		for _, r := range j.ranks {
			r.close()
		}
		return named(at.rank, err)
	}
	r.c.tellLate, r.c.warnOnce = j.noteLate, &j.unwaited
	j.ranks = append(j.ranks, r)
	return nil
}

// runAll runs fn on all ranks of this process.
func (j *job) runAll(ctx context.Context, fn func(ctx context.Context, r *Rank) error) error {
	ctx, j.cancel = context.WithCancelCause(ctx)
	defer j.cancel(nil)
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		j.abort(context.Cause(ctx))
		close(aborted)
	})
	var wg sync.WaitGroup
	for _, r := range j.ranks {
		wg.Go(func() {
			defer r.ended.Store(true)
			j.run(ctx, r, fn)
		})
	}
	if err := j.wait(ctx, &wg); err != nil {
		return err
	}
	if !stop() { // the abort has begun: wait for it before anything is closed
		<-aborted
	}
	return j.close()
}

// stuckAfter is how long ranks have to end after a failure, in addition to the timeout: a save may wait for a disk.
const stuckAfter = 15 * time.Second

// wait returns when all ranks have ended. After a failure, one that is stuck in its own code cannot be ended, as a process can: what is
// known is printed soon, and later the failure is returned. Then nothing of the ranks is freed.
func (j *job) wait(ctx context.Context, wg *sync.WaitGroup) error {
	if len(j.ranks) == 1 {
		wg.Wait()
		return nil
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	began := time.Now()
	for _, patience := range [2]time.Duration{time.Second, j.cfg.Timeout + stuckAfter} {
		select {
		case <-done:
			return nil
		case <-time.After(patience):
		}
		if patience == time.Second {
			text := fmt.Sprintf("%v\n%s has not ended yet\n%s", context.Cause(ctx), j.running(), flightText(j.ranks, 8)+j.lateText())
			j.logMu.Lock()
			fmt.Fprint(j.cfg.dump, text)
			j.logMu.Unlock()
		}
	}
	return fmt.Errorf("%w\ndist: %s did not end within %v: it is not in a collective; all goroutines:\n%s", context.Cause(ctx), j.running(),
		time.Since(began).Round(time.Second), where.Stacks())
}

// running names the first rank that has not ended.
func (j *job) running() string {
	for _, r := range j.ranks {
		if !r.ended.Load() {
			return fmt.Sprintf("rank %d", r.c.rank)
		}
	}
	return "no rank"
}

// job is a run of goroutine ranks.
type job struct {
	cfg    Config
	ranks  []*Rank
	cancel context.CancelCauseFunc
	logMu  sync.Mutex

	stopped sync.Once

	mu   sync.Mutex
	errs []error // in the order of the failures

	unwaited  sync.Once // the warning
	lateNoted bool
	late      string // what noteLate found
}

func (j *job) first() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.errs) == 0 {
		return nil
	}
	return j.errs[0]
}

// fail notes that a rank failed and ends the others.
func (j *job) fail(err error) {
	j.note(err)
	j.stop()
}

// note notes that a rank failed, and returns the index of its error.
func (j *job) note(err error) (at int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.errs = append(j.errs, err)
	return len(j.errs) - 1
}

// amend adds to the error at that index.
func (j *job) amend(at int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.errs[at] = errors.Join(j.errs[at], err)
}

// stop ends all ranks, because of the first failure.
func (j *job) stop() {
	j.stopped.Do(func() {
		err := j.first()
		j.abort(cause(err))
		j.cancel(err)
	})
}

// cause returns the *Error in err, which peers get.
func cause(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return err
}

func (j *job) abort(err error) {
	for _, r := range j.ranks {
		r.c.abort(err)
	}
}

// run is the goroutine of a rank: it calls fn, then what AtEnd registered, and then ends what is still in flight.
func (j *job) run(ctx context.Context, r *Rank, fn func(ctx context.Context, r *Rank) error) {
	defer r.leave()
	r.goroutine.Store(new(where.Goroutine()))
	unbind, err := r.bind()
	if err != nil {
		j.fail(named(r.c.rank, err))
		return
	}
	defer unbind()
	defer pprof.SetGoroutineLabels(ctx)
	ctx = pprof.WithLabels(ctx, pprof.Labels("rank", strconv.Itoa(r.c.rank))) // in profiles and tracebacks
	pprof.SetGoroutineLabels(ctx)
	r.c.labels = ctx
	guard(r, func() error { return fn(ctx, r) }, func(err error) {
		if err != nil {
			j.endFailed(ctx, r, err)
			return
		}
		r.atEnd(ctx, func(err error) {
			guard(r, r.finish, func(unseen error) {
				if err = errors.Join(err, unseen); err != nil {
					j.fail(err)
				} else if e, ok := r.c.engine.(backend.Finisher); ok && ctx.Err() == nil { // otherwise the others end because of ctx
					e.Finish()
				}
			})
		})
	})
}

// endFailed ends a rank whose function failed. If it failed by itself, the groups of the job still work: background work may finish
// before the other ranks are ended.
func (j *job) endFailed(ctx context.Context, r *Rank, err error) {
	at := j.note(err)
	if communication(err) {
		j.stop()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, j.cfg.Timeout/2, err)
	defer cancel()
	r.atEnd(ctx, func(more error) {
		if more != nil {
			j.amend(at, more)
		}
		j.stop()
	})
}

// leave tells the engine that the rank has finished.
func (r *Rank) leave() {
	r.c.policy.Crowd.Leave()
	if e, ok := r.c.engine.(backend.Leaver); ok {
		e.Leave()
	}
}

// binder is a device whose work belongs to OS threads, as with CUDA's contexts.
type binder interface {
	Bind() error // binds the calling goroutine to its thread, and the device to that thread
	Unbind()
}

// bind binds the goroutine to the rank's device, until unbind.
func (r *Rank) bind() (unbind func(), err error) {
	b, ok := r.Device.(binder)
	if !ok {
		return func() {}, nil
	}
	if err := b.Bind(); err != nil {
		return nil, err
	}
	return b.Unbind, nil
}

// named puts the rank in front of an error, unless the error comes from a group.
func named(rank int, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Rank: rank, Cause: err}
}

// panicked turns a panic value into an error that has the program's line. A *tensor.Failure, or another error that contains the failure
// of a group, is kept. Anything else is a mistake in the program or in this module, and gets the stack.
func panicked(rank int, p any) error {
	err, ok := p.(error)
	f, failed := errors.AsType[*tensor.Failure](err)
	_, of := errors.AsType[*Error](err)
	if failed {
		if own := err == error(f) || !of; own && f.At == "" { // what is inside the error of a group may be another rank's
			f.At = where.Panic()
		}
		return named(rank, err)
	}
	if of {
		return err
	}
	if !ok {
		err = fmt.Errorf("%v", p)
	}
	return &Error{Rank: rank, Cause: fmt.Errorf("panic: %w\n%s", err, where.Stack())}
}

// close ends the ranks after their goroutines have returned, and returns the job's error.
func (j *job) close() error {
	if communication(j.first()) {
		fmt.Fprint(j.cfg.dump, flightText(j.ranks, 8)+j.lateText())
	}
	errs := make([]error, len(j.ranks))
	var wg sync.WaitGroup
	for i, r := range j.ranks { // at the same time: the Close of an engine may wait for that of others
		wg.Go(func() {
			if j.first() != nil {
				r.c.abort(j.first()) // from now on no peer uses the memory that close frees
			}
			errs[i] = r.release()
		})
	}
	wg.Wait()
	for _, r := range j.ranks {
		r.close()
	}
	if len(j.errs) == 0 {
		return errors.Join(errs...)
	}
	return &runError{first: j.errs[0], rest: j.errs[1:]}
}

// communication reports whether err is the failure of a group, and not of a rank's function by itself.
func communication(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Group != ""
}

// runError is the first failure of a job, and the number of failures that followed from it.
type runError struct {
	first error
	rest  []error
}

// Error returns the first failure, and how many ranks failed because of it.
func (e *runError) Error() string {
	text, echoes := e.first.Error(), 0
	why := cause(e.first)
	for _, r := range e.rest {
		if errors.Is(r, why) || strings.Contains(r.Error(), why.Error()) { // an error from another process is only text
			echoes++
		}
	}
	if echoes > 0 {
		text += fmt.Sprintf(" (and %s failed because of it)", ranks.Count(echoes))
	}
	if n := len(e.rest) - echoes; n > 0 {
		text += fmt.Sprintf(" (and %s failed as well)", ranks.Count(n))
	}
	return text
}

// Unwrap returns the first failure.
func (e *runError) Unwrap() error { return e.first }
