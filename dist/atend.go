package dist

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/where"
)

// AtEnd has f called when the rank's function is over, on the rank's goroutine and before the rank leaves the job: for work
// in the background that must be over by then, such as a checkpoint that is being written. What was registered last is called
// first. An error of f, or a panic in it, joins the rank's error, which Run returns.
//
// f is called also when the function failed. While ctx lives, the groups work, and f should finish its work. If the
// function returned nil, that takes as long as it takes. If it failed by itself, with an error or a panic, ctx ends
// after half the timeout of the world group at most: the other ranks, which hear of the failure only when f is over, still wait
// then. If a group failed, another rank did, or Run's own ctx ended, ctx is over from the beginning: all groups fail, and
// f should give up in bounded time and say what is lost.
func (r *Rank) AtEnd(f func(ctx context.Context) error) { r.World.AtEnd(f) }

// AtEnd is Rank.AtEnd, for who knows a group of the rank.
func (g *Group) AtEnd(f func(ctx context.Context) error) {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	g.c.atEnd = append(g.c.atEnd, f)
}

// popEnd takes the function that AtEnd registered last; nil: there is none left.
func (c *comm) popEnd() (f func(ctx context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.atEnd); n > 0 {
		f, c.atEnd = c.atEnd[n-1], c.atEnd[:n-1]
	}
	return f
}

// atEnd calls what AtEnd registered, and then next with the joined errors.
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

// guard calls f, and next with its error, into which a panic or runtime.Goexit is turned. After a Goexit nothing but deferred
// functions runs on a goroutine: so next does.
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
