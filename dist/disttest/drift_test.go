package disttest

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// made are the timings of a soak on a machine whose load changes. Operations take load(t) times as long; those on the old group also
// slow(t) times as long, with t from 0 to 1. Each sample has noise, and some are far off.
func made(seed uint64, load, slow func(t float64) float64) *timings {
	rng := rand.New(rand.NewPCG(seed, 1))
	noise := func() float64 {
		x := math.Exp(0.5 * rng.NormFloat64())
		if rng.IntN(20) == 0 {
			x *= 30
		}
		return x
	}
	var l timings
	for i := range 2000 {
		t := float64(i) / 2000
		l.newSmall = append(l.newSmall, 1e4*load(t)*noise())
		l.newLarge = append(l.newLarge, 3e4*load(t)*noise())
		l.small = append(l.small, 1e4*load(t)*slow(t)*noise())
		l.large = append(l.large, 3e4*load(t)*noise())
	}
	return &l
}

func flat(float64) float64 { return 1 }

// after is 1 before a time, and x from then on.
func after(at, x float64) func(float64) float64 {
	return func(t float64) float64 {
		if t < at {
			return 1
		}
		return x
	}
}

// often is x in half of the cases from a time on.
func often(at, x float64) func(float64) float64 {
	return func(t float64) float64 {
		if t < at || int(t*2000)%2 == 0 {
			return 1
		}
		return x
	}
}

// lucky is 1/6 in one of six cases until a time, and otherwise 1.
func lucky(until float64) func(float64) float64 {
	return func(t float64) float64 {
		if t < until && int(t*2000)%6 == 0 {
			return 1. / 6
		}
		return 1
	}
}

// If the machine gets busy, it is not a slowdown, at any time, even if operations take much longer for a while. If operations get slower,
// it is one.
func TestDrift(t *testing.T) {
	grows := func(t float64) float64 { return 1 + 2.5*t }
	for _, c := range []struct {
		name       string
		load, slow func(float64) float64
		drift      bool
	}{
		{"nothing", flat, flat, false},
		{"load in the last half", after(0.5, 10), flat, false},
		{"load grows", grows, flat, false},
		{"a burst at the end", flat, after(0.85, 6), false},
		{"load costs operations more", after(0.5, 10), after(0.5, 1.5), false},
		{"ranks often wait for a core", flat, often(0.5, 20), false},
		{"ranks meet by chance, early", flat, lucky(0.3), false},
		{"operations get slower", flat, grows, true},
		{"slower under load", after(0.3, 5), grows, true},
		{"slower when the load ends", func(t float64) float64 { return 6 - 5*t }, grows, true},
		{"slower from half time on", flat, after(0.5, 3), true},
	} {
		for seed := range uint64(30) {
			l := made(seed, c.load, c.slow)
			err := l.slower()
			if !assert.Equal(t, c.drift, err != nil, "%s, seed %d: %v, %v", c.name, seed, l, err) {
				break
			}
			if c.drift {
				require.ErrorContains(t, err, "small all-reduces take", c.name)
			}
		}
	}
}

// Resources that are not freed are a leak.
func TestHeld(t *testing.T) {
	before := holdings()
	require.NoError(t, before.compare(holdings()))
	stop := make(chan struct{})
	for range 20 {
		go func() { <-stop }()
	}
	require.ErrorContains(t, before.compare(holdings()), "something leaks")
	close(stop)
	if before.files > 0 { // if the system tells
		var open []*os.File
		for range 10 {
			f, err := os.Open(os.DevNull)
			require.NoError(t, err)
			open = append(open, f)
		}
		require.ErrorContains(t, before.compare(holdings()), "something leaks")
		for _, f := range open {
			require.NoError(t, f.Close())
		}
	}
	for _, later := range []held{{heap: 100 << 20}, {mappings: 100}} {
		assert.ErrorContains(t, held{}.compare(later), "something leaks")
	}
}
