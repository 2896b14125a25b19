package interrupt

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// Listener notes a signal of this process.
type Listener struct {
	Agreed syscall.Signal // that all ranks know of; 0: none

	heard atomic.Int32
	stop  func()
}

// grace is how long after the first signal others change nothing. If all processes of a job get a signal, a rank gets it from the
// launcher, too.
const grace = time.Second

// Listen notes the first SIGINT, SIGTERM or SIGHUP until Stop or the end of ctx. One that comes a second later kills, as it does without
// a Listener. What was ignored when the program began, as by nohup, stays ignored.
func Listen(ctx context.Context) *Listener {
	l := new(Listener)
	c := make(chan os.Signal, 1)
	ctx, cancel := context.WithCancel(ctx)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	l.stop = func() {
		if l.Heard() == 0 { // at once, so that the next signal kills
			signal.Stop(c)
		}
		cancel()
	}
	go func() {
		defer cancel()
		defer signal.Stop(c)
		select {
		case s := <-c:
			if s, ok := s.(syscall.Signal); ok {
				l.heard.Store(int32(s))
			}
			<-time.After(grace)
		case <-ctx.Done():
		}
	}()
	return l
}

// Heard returns the signal of this process, or 0, for Agree.
func (l *Listener) Heard() float64 { return float64(l.heard.Load()) }

// Agree takes what Heard returned on each rank. All ranks agree on the first signal.
func (l *Listener) Agree(heard []float64) {
	for _, s := range heard {
		l.Agreed = cmp.Or(l.Agreed, syscall.Signal(s))
	}
}

// Stop ends listening. After a signal, this is when others kill again.
func (l *Listener) Stop() { l.stop() }
