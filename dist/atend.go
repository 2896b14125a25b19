package dist

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/where"
)

// AtEnd registers f, which is called when the rank's function has returned, on the rank's goroutine and before the rank leaves the job.
// It is for background work that must end first, such as a checkpoint that is being written. The last registered f is called first. An
// error or panic of f joins the rank's error, which Run returns.
//
// f is called also when the function failed. While ctx is not done, the groups work, and f should finish its work:
//
//   - If the function returned nil, f may take as long as it needs.
//   - If the function failed by itself, with an error or a panic, ctx ends after at most half the timeout of the world group. The other
//     ranks get the failure only after f, and still wait then.
//   - If a group or another rank failed, or Run's own ctx ended, ctx has ended already. All groups fail, and f should return soon and say
//     what is lost.
func (r *Rank) AtEnd(f func(ctx context.Context) error) { r.World.AtEnd(f) }

// AtEnd is Rank.AtEnd, for code that has only a group of the rank.
func (g *Group) AtEnd(f func(ctx context.Context) error) {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.c.atEnd = append(g.c.atEnd, f)
}

// popEnd removes and returns the function that AtEnd registered last; nil if there is none left.
func (c *comm) popEnd() (f func(ctx context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.atEnd); n > 0 {
		f, c.atEnd = c.atEnd[n-1], c.atEnd[:n-1]
	}
	return f
}

// atEnd calls what AtEnd registered, then next with the joined errors.
func (r *Rank) atEnd(ctx context.Context, next func(err error)) {
	f := r.c.popEnd()
	if f == nil {
		next(nil)
		return
	}
	guard(r, func() error { return f(ctx) }, func(mine error) {
		r.atEnd(ctx, func(others error) { next(errors.Join(mine, others)) })
	})
}

// guard calls f, and then next with its error. A panic or runtime.Goexit of f becomes an error. next runs deferred, because nothing else
// runs on a goroutine after a Goexit.
func guard(r *Rank, f func() error, next func(err error)) {
	var err error
	rank, returned := r.c.rank, false
	defer func() {
		if p := recover(); p != nil {
			r.explain(p)
			err = panicked(rank, p)
		} else if !returned {
			err = &Error{Rank: rank, Cause: fmt.Errorf("runtime.Goexit was called (testify's require does)\n%s", where.Stack())}
		}
		next(err)
	}()
	if err = f(); err != nil {
		r.explain(err)
		err = named(rank, err)
	}
	returned = true
}
