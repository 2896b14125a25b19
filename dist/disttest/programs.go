package disttest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is how long a program may take in real time. Inside a bubble all waiting is virtual: more means that it hangs on
// something that is no channel, timer or condition.
const stuck = time.Minute

// Programs runs random programs, each in a bubble of testing/synctest, and judges them. RINGO_PROGRAMS is their number, and
// RINGO_SEED=n runs program n alone and prints what happened: a failure says which. Goroutines run in an order that no seed
// decides, so a rare failure may take several runs to come again.
func Programs(t *testing.T, run func(p *Program) *Outcome) {
	first, count := uint64(1), uint64(100)
	if Long() {
		count = 5000
	}
	if n, err := strconv.ParseUint(os.Getenv("RINGO_PROGRAMS"), 10, 64); err == nil {
		count = n
	}
	one := false
	if n, err := strconv.ParseUint(os.Getenv("RINGO_SEED"), 10, 64); err == nil {
		first, count, one = n, 1, true
	}
	began := time.Now()
	var next, failed atomic.Uint64
	next.Store(first)
	t.Run("programs", func(t *testing.T) {
		for w := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("worker ", w), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1) - 1; seed < first+count; seed = next.Add(1) - 1 {
					p := RandomProgram(seed)
					o, err := inBubble(t, p, run)
					if err != nil {
						t.Errorf("RINGO_SEED=%d: %v\n%s; %s\n%v", seed, err, p, text(o), errs(o))
						failed.Add(1)
					} else if one {
						t.Logf("%s; %s\n%v", p, text(o), errs(o))
					}
					if failed.Load() >= 10 {
						return
					}
				}
			})
		}
	})
	took := time.Since(began)
	t.Logf("%d programs in %v, %v each", count, took.Round(time.Millisecond), (took / time.Duration(count)).Round(time.Microsecond))
}

func text(o *Outcome) string {
	if o == nil || o.Text == "" {
		return "no fault"
	}
	return o.Text
}

func errs(o *Outcome) (s string) {
	if o == nil {
		return ""
	}
	for rank, err := range o.Errs {
		s += fmt.Sprintf("  rank %d after %v: %v\n", rank, o.Took[rank], err)
	}
	return s
}

// inBubble runs one program. A deadlock is an error.
func inBubble(t *testing.T, p *Program, run func(p *Program) *Outcome) (o *Outcome, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	watch := time.AfterFunc(stuck, func() {
		buf := make([]byte, 4<<20)
		panic(fmt.Sprintf("RINGO_SEED=%d hangs: %s\n%s", p.Seed, p, buf[:runtime.Stack(buf, true)]))
	})
	defer watch.Stop()
	synctest.Test(t, func(*testing.T) { o = run(p) })
	return o, p.Judge(o)
}
