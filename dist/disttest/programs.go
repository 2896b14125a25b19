package disttest

import (
	"fmt"
	"runtime"
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

// Programs runs random programs, each in a bubble of testing/synctest, and judges them: in the long form for a time (reliability.Random).
// A failure tells its seed. The seed does not decide the order of goroutines, so a rare failure may need several runs to happen again.
func Programs(t *testing.T, run func(p *Program) *Outcome) {
	eachProgram(t, 20, 1, func(p *Program) (*Outcome, error) { return Check(t, p, run) })
}

// ProgramsInRealTime runs a tenth as many programs outside a bubble, for engines that wait for real I/O. A rank sleeps only in
// the long runs, because others wait seconds for it.
func ProgramsInRealTime(t *testing.T, run func(p *Program) *Outcome) {
	abreast := 1
	if reliability.Long(t) {
		abreast = 4 // most of them sleep
	}
	eachProgram(t, 2, abreast, func(p *Program) (*Outcome, error) {
		if p.realTime(); p.Mishap == Sleeps && !reliability.Long(t) {
			p.Mishap = Nothing
		}
		o := run(p)
		return o, p.Judge(o)
	})
}

// eachProgram runs programs for a time (reliability.Random), in the short form at most so many, and `abreast` of them at once on each core.
func eachProgram(t *testing.T, most uint64, abreast int, check func(p *Program) (*Outcome, error)) {
	seeds, began := reliability.Random(t), time.Now()
	var count, failed atomic.Uint64
	work := func(t *testing.T) {
		for failed.Load() < 10 && (count.Add(1) <= most || reliability.Long(t)) {
			seed, ok := seeds.Next()
			if !ok {
				return
			}
			p := RandomProgram(seed)
			o, err := check(p)
			if err != nil {
				t.Errorf("RINGO_SEED=%d: %v\n%s; %s", seed, err, p, o)
				failed.Add(1)
			} else if seeds.One() {
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
	t.Logf("about %d programs in %v", count.Load(), time.Since(began).Round(time.Millisecond))
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
