package disttest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// stuck is the longest real time of a program. Inside a bubble all waiting is virtual, so more time means that it hangs on something that
// is not a channel, timer or condition.
const stuck = time.Minute

// Programs runs random programs, each in a bubble of testing/synctest, and judges them. RINGO_PROGRAMS is their number. RINGO_SEED=n runs
// only program n and prints what happened; a failure tells its seed. The seed does not decide the order of goroutines, so a rare failure
// may need several runs to happen again.
func Programs(t *testing.T, run func(p *Program) *Outcome) {
	eachProgram(t, 1, 1, func(p *Program) (*Outcome, error) { return Check(t, p, run) })
}

// ProgramsInRealTime runs a tenth as many programs outside a bubble, for engines that wait for real I/O. A rank sleeps only in
// the long runs, because others wait seconds for it.
func ProgramsInRealTime(t *testing.T, run func(p *Program) *Outcome) {
	abreast := 1
	if reliability.Long(t) {
		abreast = 4 // most of them sleep
	}
	eachProgram(t, 10, abreast, func(p *Program) (*Outcome, error) {
		if p.realTime(); p.Mishap == Sleeps && !reliability.Long(t) {
			p.Mishap = Nothing
		}
		o := run(p)
		return o, p.Judge(o)
	})
}

// eachProgram divides the number of programs by `of`, and runs `abreast` of them at the same time on each core.
func eachProgram(t *testing.T, of uint64, abreast int, check func(p *Program) (*Outcome, error)) {
	first, count := uint64(1), 40/of
	if reliability.Long(t) {
		count = 5000 / of
	}
	if n, err := strconv.ParseUint(os.Getenv("RINGO_PROGRAMS"), 10, 64); err == nil {
		count = n / of
	}
	one := false
	if n, err := strconv.ParseUint(os.Getenv("RINGO_SEED"), 10, 64); err == nil {
		first, count, one = n, 1, true
	}
	began := time.Now()
	var next, failed atomic.Uint64
	next.Store(first)
	work := func(t *testing.T) {
		for seed := next.Add(1) - 1; seed < first+count && failed.Load() < 10; seed = next.Add(1) - 1 {
			p := RandomProgram(seed)
			o, err := check(p)
			if err != nil {
				t.Errorf("RINGO_SEED=%d: %v\n%s; %s", seed, err, p, o)
				failed.Add(1)
			} else if one {
				t.Logf("%s; %s", p, o)
			}
		}
	}
	t.Run("programs", func(t *testing.T) {
		for w := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("worker ", w), func(t *testing.T) {
				t.Parallel()
				var wg sync.WaitGroup
				for i := range abreast {
					wg.Go(func() { t.Run(fmt.Sprint(i), work) })
				}
				wg.Wait()
			})
		}
	})
	took := time.Since(began)
	t.Logf("%d programs in %v, %v each", count, took.Round(time.Millisecond), (took / time.Duration(count)).Round(time.Microsecond))
}

// Check runs one program in a bubble and judges it. A deadlock is an error.
func Check(t *testing.T, p *Program, run func(p *Program) *Outcome) (o *Outcome, err error) {
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
