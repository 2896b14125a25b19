package wait_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/wait"
)

func TestPolicyFollowsCores(t *testing.T) {
	cores := runtime.GOMAXPROCS(0)
	require.Equal(t, wait.Policy{Spin: wait.SpinTime}, wait.For(cores))
	require.Equal(t, wait.Policy{Yields: wait.MaxYields}, wait.For(cores+1))
	require.Positive(t, wait.Among(wait.NewCrowd(1), 1).Spin)
	defer wait.ParkAtOnce.Store(false)
	wait.ParkAtOnce.Store(true)
	require.Zero(t, wait.For(cores))
	require.Zero(t, wait.Among(wait.NewCrowd(1), 1))
}

func TestSpinEndsByTheClock(t *testing.T) {
	s := wait.Policy{Spin: 2 * time.Millisecond}.Start()
	begin := time.Now()
	polls := 0
	for s.Again() {
		polls++
	}
	require.GreaterOrEqual(t, time.Since(begin), 2*time.Millisecond)
	require.Positive(t, polls)
	require.False(t, s.Again(), "once it is time to park, it stays so")
	s.Reset()
	require.True(t, s.Again())
}

func TestYieldsAreCounted(t *testing.T) {
	s := wait.Policy{Yields: 5}.Start()
	n := 0
	for s.Again() {
		n++
	}
	require.Equal(t, 5, n)
	none := wait.Policy{}.Start()
	require.False(t, none.Again(), "the zero policy parks at once")
}

// In a synctest bubble the clock stands still while a goroutine runs. A spin must still end.
func TestSpinEndsWhenTheClockStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wait.Policy{Spin: time.Hour}.Start()
		begin := time.Now()
		for s.Again() {
		}
		require.Equal(t, begin, time.Now(), "the clock did not move")
	})
}

// A parked goroutine makes room for a spinning one. It counts again as soon as its bell is rung, before it runs.
func TestSpinWhileThereIsRoom(t *testing.T) {
	crowd := wait.NewCrowd(3)
	policy := wait.Among(crowd, 1)
	policy.Room, policy.Spin = 2, time.Hour
	crowded := policy.Start()
	require.False(t, crowded.Again(), "three are awake, two may be")
	bell, parked := crowd.NewBell(), make(chan struct{})
	go func() {
		defer close(parked)
		_ = bell.Park(t.Context())
	}()
	for crowd.Awake() == 3 {
		runtime.Gosched()
	}
	roomy := policy.Start()
	for range 1000 {
		require.True(t, roomy.Again())
	}
	bell.Ring()
	if crowd.Awake() != 3 { // the goroutine may not have parked yet, and then it reads the bell itself
		<-parked
	}
	require.Equal(t, 3, crowd.Awake())
	require.False(t, roomy.Again(), "a spin ends when the others need the core")
	<-parked
	crowd.Leave()
	require.Equal(t, 2, crowd.Awake())
}

func TestBellCountsItsCrowd(t *testing.T) {
	crowd := wait.NewCrowd(1)
	b := crowd.NewBell()
	b.Ring()
	require.NoError(t, b.Park(t.Context()))
	require.Equal(t, 1, crowd.Awake(), "a rung bell lets nobody sleep")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.Park(ctx), context.Canceled)
	require.Equal(t, 1, crowd.Awake())
}

func TestBellRemembersARing(t *testing.T) {
	b := wait.NewBell()
	b.Ring()
	b.Ring()
	require.NoError(t, b.Park(t.Context()), "rung before")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.Park(ctx), context.Canceled, "two rings are one")
	b.Ring()
	require.NoError(t, b.Park(ctx), "a ring counts more than an ended context")
}

// Two goroutines pass a counter to each other through two bells: a lost ring would hang.
func TestBellLosesNoRing(t *testing.T) {
	const rounds = 20_000
	bells := [2]*wait.Bell{wait.NewBell(), wait.NewBell()}
	var turn atomic.Int64
	var wg sync.WaitGroup
	for me := range int64(2) {
		wg.Go(func() {
			for k := me; k < rounds; k += 2 {
				for turn.Load() != k {
					if err := bells[me].Park(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
				turn.Store(k + 1)
				bells[1-me].Ring()
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, rounds, turn.Load())
}

// Cancelled parks and rings race. No ring may be lost, and no token may be left that blocks a later ring.
func TestBellCancelRace(t *testing.T) {
	crowd := wait.NewCrowd(1)
	b := crowd.NewBell()
	var work, seen atomic.Int64
	const items = 3000
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range items {
				work.Add(1)
				b.Ring()
			}
		})
	}
	for seen.Load() < 3*items {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Microsecond)
		_ = b.Park(ctx) // with or without an error there may be work
		cancel()
		seen.Store(work.Load())
	}
	wg.Wait()
	require.Equal(t, 1, crowd.Awake())
}

func TestParkDoesNotAllocate(t *testing.T) {
	b := wait.NewBell()
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b.Ring()
		_ = b.Park(ctx)
	}))
}

// BenchmarkWake measures the base of SpinTime: the time from a Ring to the first step of the parked goroutine, after the core had some
// time to go to sleep.
func BenchmarkWake(b *testing.B) {
	for _, idle := range []time.Duration{0, time.Millisecond} {
		b.Run(idle.String(), func(b *testing.B) {
			bell, rung := wait.NewBell(), make(chan time.Time)
			done := make(chan struct{})
			var total time.Duration
			go func() {
				defer close(done)
				for range b.N {
					_ = bell.Park(context.Background())
					total += time.Since(<-rung)
				}
			}()
			for range b.N {
				for start := time.Now(); time.Since(start) < idle+5*time.Microsecond; {
				}
				now := time.Now()
				bell.Ring()
				rung <- now
			}
			<-done
			b.ReportMetric(float64(total.Nanoseconds())/1e3/float64(b.N), "µs/wake")
		})
	}
}
