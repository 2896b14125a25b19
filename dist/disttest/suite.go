package disttest

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/wait"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// Start runs fn on n ranks and returns the job's error.
type Start func(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error

// OnDevices gives each rank a device whose memory Go code cannot access.
func OnDevices(start Start) Start {
	return func(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
		cfg.Device = tensortest.Remotes(t)
		return start(t, n, cfg, fn)
	}
}

// Ranks of tests park at once: to spin takes up to a half of their time. Those of benchmarks, also in processes that these start, and of
// the long form of Run spin.
func init() {
	const spin = "DISTTEST_SPIN"
	if strings.Contains(strings.Join(os.Args, " "), " -test.bench=") {
		os.Setenv(spin, "1")
	}
	spinning.add(len(os.Getenv(spin)))
}

// spinning counts what lets ranks spin: benchmarks, and suites of the long form while they run. Other suites beside these spin, too.
var spinning spinners

type spinners struct {
	mu sync.Mutex
	n  int
}

func (s *spinners) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n += n
	wait.ParkAtOnce.Store(s.n == 0)
}

// slack is how much a busy machine may add to a time limit.
const slack = reliability.Slack

// Run runs the named parts of the suite, or all of them, beside each other; in a test of the long runs, with more ranks, operations and
// repetitions. Tests that need faults are in RunFaults.
func Run(t *testing.T, start Start, parts ...string) {
	(&suite{start: start, full: reliability.Long(t)}).run(t, parts)
}

// RunShort is Run as it is in short tests.
func RunShort(t *testing.T, start Start, parts ...string) { (&suite{start: start}).run(t, parts) }

// RunInOrder is Run with one part after the other: for ranks in processes, which must all be in the same part.
func RunInOrder(t *testing.T, start Start, parts ...string) {
	(&suite{start: start, full: reliability.Long(t), inOrder: true}).run(t, parts)
}

// RunEmulated is Run for ranks on emulated devices, which are a hundred times slower than real ones. The long form has up to 9 ranks and
// all operations, but sizes and repetitions of the short form.
func RunEmulated(t *testing.T, start Start, parts ...string) {
	(&suite{start: start, full: reliability.Long(t), emulated: true}).run(t, parts)
}

func (s *suite) run(t *testing.T, parts []string) {
	if s.full {
		spinning.add(1)
		t.Cleanup(func() { spinning.add(-1) })
	}
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"Reductions", s.reductions},
		{"NaN", s.nan},
		{"HalfRoundsOnce", s.halfRoundsOnce},
		{"Movement", s.movement},
		{"VForms", s.vForms},
		{"InPlace", s.inPlace},
		{"Forms", s.forms},
		{"Groups", s.groups},
		{"Mesh", s.mesh},
		{"InFlight", s.inFlight},
		{"Backpressure", s.backpressure},
		{"Dependent", s.dependent},
		{"PointToPoint", s.pointToPoint},
		{"Batch", s.batch},
		{"Objects", s.objects},
		{"Bytes", s.bytes},
		{"RandomPrograms", s.randomPrograms},
		{"TwoGoroutines", s.twoGoroutines},
		{"Errors", s.errors},
		{"Edges", s.edges},
		{"Lifetimes", s.lifetimes},
		{"Rebuild", s.rebuild},
		{"EveryOperation", s.everyOperation},
	} {
		if len(parts) == 0 || slices.Contains(parts, c.name) {
			t.Run(c.name, func(t *testing.T) {
				s.beside(t)
				c.test(t)
			})
		}
	}
}

// beside lets a part run beside others.
func (s *suite) beside(t *testing.T) {
	if !s.inOrder {
		t.Parallel()
	}
}

type suite struct {
	start    Start
	full     bool // the long form
	emulated bool
	inOrder  bool
}

// long reports whether sizes and repetitions of the long form are used.
func (s *suite) long() bool { return s.full && !s.emulated }

// await waits until something is over that another rank does, and that fails; if that is in another process, until g has failed.
func (s *suite) await(over <-chan struct{}, g *dist.Group) {
	if !s.inOrder {
		<-over
		return
	}
	for began := time.Now(); g.Err() == nil && time.Since(began) < time.Minute; {
		time.Sleep(time.Millisecond) //sleep: between two looks
	}
}

// waited is closed when all have come.
func waited(all *sync.WaitGroup) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		all.Wait()
		close(over)
	}()
	return over
}

// sizes are the numbers of ranks that cheap tests use.
func (s *suite) sizes() []int {
	if s.full {
		return []int{1, 2, 3, 5, 8} // powers of two, and what is next to them
	}
	return []int{1, 3}
}

// ok runs fn on n ranks and fails the test on an error.
func (s *suite) ok(t *testing.T, n int, fn func(r *dist.Rank) error) {
	t.Helper()
	require.NoError(t, s.start(t, n, quiet(0), fn))
}

func quiet(timeout time.Duration) dist.Config {
	return dist.Config{Threads: 1, Log: io.Discard, Timeout: timeout}
}

// table collects a value from every rank.
type table[T any] struct {
	mu   sync.Mutex
	rows map[int]T
}

func (x *table[T]) put(rank int, v T) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.rows == nil {
		x.rows = map[int]T{}
	}
	x.rows[rank] = v
}

// holds returns an error if the elements of x are not at(0), at(1), …; for Bool the lowest bit of at counts.
func holds(what string, x tensor.Tensor, at func(i int) float64) error {
	boolean := x.DType() == tensor.Bool
	for i, got := range tensor.Floats(x) {
		want := at(i)
		if boolean {
			want = float64(int(want) & 1)
		}
		if got != want && (got == got || want == want) {
			return fmt.Errorf("%s: element %d is %v, want %v", what, i, got, want)
		}
	}
	return nil
}
