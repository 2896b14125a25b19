package values_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/internal/values"
)

// onRanks calls f on ranks, whose time is not the clock's.
func onRanks(t *testing.T, ranks int, f func(g *dist.Group, v *values.Table) error) {
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, dist.Run(context.Background(), dist.Config{
			Ranks: ranks, Threads: 1, Log: io.Discard,
		}, func(_ context.Context, r *dist.Rank) error {
			return f(r.World, values.New(r.World, r.Device))
		}))
	})
}

// part is one number.
func part(x float64) tensor.Tensor { return tensor.FromSlice([]float64{x}, 1) }

// lines is a writer that keeps what it got.
type lines struct {
	got    []string
	closed bool
}

func (l *lines) Write(step int, _ time.Time, values map[string]float64) error {
	l.got = append(l.got, fmt.Sprint(step, values))
	if values["b"] == 13 {
		return fmt.Errorf("step %d is not written", step)
	}
	return nil
}

func (l *lines) Close() error {
	l.closed = true
	return nil
}

// Parts add up over ranks and within a step, whatever order names come in; the writers get a step once, when it is over.
func TestTable(t *testing.T) {
	onRanks(t, 2, func(g *dist.Group, v *values.Table) error {
		var w lines
		v.To(&w)
		rank := float64(g.Rank())
		v.Begin()
		v.Sum("b", part(1+rank))
		v.Sum("b", part(2))
		v.Add("a", 0.5)
		v.Step()
		v.Begin()
		v.Sum("b", part(6+rank))
		v.Sum("c", part(10*rank))
		notes, flagged, err := v.Gather(100+rank, rank == 1)
		require.NoError(t, err)
		require.True(t, flagged)
		require.Equal(t, []float64{100, 101}, notes)
		require.NoError(t, v.Write())
		require.Equal(t, []string{"1 map[a:0.5 b:7]"}, w.got)
		v.Step()
		require.EqualError(t, v.Write(), "step 2 is not written")
		require.NoError(t, v.Write(), "only once")
		require.Equal(t, []string{"1 map[a:0.5 b:7]", "2 map[b:13 c:10]"}, w.got)
		steps, got := v.Of("b")
		require.Equal(t, []int{1, 2}, steps)
		require.Equal(t, []float64{7, 13}, got)
		require.Equal(t, "b", v.Series[0].Name, "in the order of first use")
		require.NoError(t, v.Close())
		require.True(t, w.closed)
		return nil
	})
}

// Ranks may begin with names in other orders, and log them so. Over 10 steps, the values are those of one rank that has all parts.
func TestOrderOfNames(t *testing.T) {
	onRanks(t, 3, func(g *dist.Group, v *values.Table) error {
		for step := range 10 {
			v.Begin()
			for k := range 3 {
				name := []string{"x", "y", "z"}[(k+g.Rank())%3]
				v.Sum(name, part(float64(len(name)*step)+float64(name[0])+float64(g.Rank())/4))
				v.Add("of "+name, float64(step))
			}
			if v.Step(); step%4 == 1 || step == 9 {
				_, _, err := v.Gather(0, false)
				require.NoError(t, err)
			}
		}
		for _, name := range []string{"x", "y", "z"} {
			_, got := v.Of(name)
			require.Len(t, got, 10)
			for step, value := range got {
				require.Equal(t, 3*(float64(step)+float64(name[0]))+0.75, value, name)
			}
		}
		return nil
	})
}

// Ranks that call Sum for other names, or in other steps, get the same error: their parts would be added to values of others.
func TestOtherCalls(t *testing.T) {
	for want, call := range map[string]func(rank int, v *values.Table){
		`train: calls of Sum("loss", …) in step 1: 0 on ranks 0, 1 and 1 on ranks 2, 3; all ranks call Sum alike, and one that has no part ` +
			`gives zero, as Step of a pipeline returns it`: func(rank int, v *values.Table) {
			if rank > 1 {
				v.Sum("loss", part(1))
			}
		},
		`train: calls of Sum("a", …) in step 1: 0 on rank 3 and 1 on ranks 0-2; calls of Sum("b", …) in step 1: 0 on ranks 0-2 and 1 on rank ` +
			`3;`: func(rank int, v *values.Table) {
			v.Sum([]string{"a", "a", "a", "b"}[rank], part(1))
		},
		`train: calls of Sum("b", …) in step 2: 0 on rank 1 and 1 on ranks 0, 2, 3;`: func(rank int, v *values.Table) {
			v.Sum("a", part(1))
			v.Sum("b", part(1))
			if v.Step(); rank == 1 {
				v.Step()
			}
			v.Begin()
			v.Sum("b", part(1))
			v.Done = 1
		},
		`train: calls of Sum("a", …) in step 1: 1 on ranks 1-3 and 2 on rank 0;`: func(rank int, v *values.Table) {
			if v.Sum("a", part(1)); rank == 0 {
				v.Sum("a", part(1))
			}
		},
		`train: ranks gave Log other values of "best" in step 1: rank 0 0.5, and rank 3 0.25: what is the best needs a value`: func(rank int,
			v *values.Table) {
			v.Best = "best"
			v.Add("best", []float64{0.5, 0.5, 0.5, 0.25}[rank])
		},
	} {
		onRanks(t, 4, func(g *dist.Group, v *values.Table) error {
			v.Begin()
			call(g.Rank(), v)
			_, _, err := v.Gather(0, false)
			require.ErrorContains(t, err, want)
			return nil
		})
	}
}

// What ranks know otherwise, such as their speeds, is that of the first rank, on all of them, and said once.
func TestOtherValues(t *testing.T) {
	log, before := new(reliability.Log), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	onRanks(t, 3, func(g *dist.Group, v *values.Table) error {
		rank := g.Rank()
		for step := range 6 {
			v.Begin()
			if rank == 0 {
				v.Add("first alone", float64(step))
			}
			if rank == 2 {
				v.Add("last alone", float64(step))
			}
			v.Sum("loss", part(float64(rank)))
			v.Add("speed", float64(10*rank+step))
			v.Add("zero", math.Copysign(0, float64(rank)-1))
			v.Add("twice", 1)
			v.Add("twice", math.NaN())
			if v.Step(); step%2 == 1 {
				_, _, err := v.Gather(0, false)
				require.NoError(t, err)
			}
		}
		text, err := json.Marshal(v.Series)
		require.NoError(t, err)
		all, err := dist.AllGatherObject(g, string(text))
		require.NoError(t, err)
		require.Equal(t, []string{all[0], all[0], all[0]}, all, "as checkpoints have it")
		for name, want := range map[string][]float64{"speed": {0, 1, 2, 3, 4, 5}, "first alone": {0, 1, 2, 3, 4, 5}, "last alone": nil,
			"loss": {3, 3, 3, 3, 3, 3}} {
			_, got := v.Of(name)
			require.Equal(t, want, got, name)
		}
		return nil
	})
	for _, text := range []string{`\"speed\" in step 1: rank 0 0, and rank 1 10`, `\"first alone\" in step 1: rank 0 0, and rank 1 none`,
		`\"last alone\" in step 1: rank 0 none, and rank 2 0`} {
		require.Equal(t, 1, strings.Count(log.String(), text), log.String())
	}
	require.Equal(t, 3, strings.Count(log.String(), "\n"), log.String())
}

// It is time to gather about twice a second, on all ranks after the same step, and when a name has no place left.
func TestPace(t *testing.T) {
	onRanks(t, 2, func(g *dist.Group, v *values.Table) error {
		var gathered []int
		for range 100 {
			if g.Rank() == 0 {
				time.Sleep(time.Duration(20+v.Done) * time.Millisecond)
			}
			if v.Step() {
				gathered = append(gathered, v.Done)
				if _, _, err := v.Gather(0, false); err != nil {
					return err
				}
			}
		}
		require.Equal(t, []int{1, 26, 41, 50, 57, 63, 69, 74, 79, 84, 88, 92, 96, 100}, gathered)
		n := 0
		for ; !v.Full("x"); n++ {
			v.Sum("x", part(1))
		}
		require.Equal(t, 512, n)
		_, flagged, err := v.Gather(0, false)
		require.NoError(t, err)
		require.False(t, flagged)
		require.False(t, v.Full("x"))
		_, got := v.Of("x")
		require.Equal(t, []float64{1024}, got)
		return nil
	})
}

// A name may have sums over ranks, which come later, and values that all ranks know.
func TestSumAndAdd(t *testing.T) {
	onRanks(t, 2, func(g *dist.Group, v *values.Table) error {
		for i := range 3 {
			v.Begin()
			v.Sum("x", part(1))
			v.Add("x", float64(10*i))
			v.Step()
		}
		if _, _, err := v.Gather(0, false); err != nil {
			return err
		}
		steps, got := v.Of("x")
		require.Equal(t, []int{1, 2, 3}, steps)
		require.Equal(t, []float64{2, 12, 22}, got)
		return nil
	})
}

// Before the steps, values belong to step 0, and behind them to the last one. After a resume, what is measured of the last step again takes
// the place of what the checkpoint has, and what a script adds in several calls is a sum as before.
func TestOutsideOfSteps(t *testing.T) {
	onRanks(t, 2, func(g *dist.Group, v *values.Table) error {
		var w lines
		v.To(&w)
		measure := func() {
			v.Add("y", 3)
			for range 2 {
				v.Sum("z", part(1))
				_, _, err := v.Gather(0, false)
				require.NoError(t, errors.Join(err, v.Write()))
			}
		}
		v.Add("x", 1)
		v.Begin()
		v.Add("x", 2)
		v.Step()
		measure()
		want := []string{"0 map[x:1]", "1 map[x:2 y:3 z:2]", "1 map[z:4]"}
		require.Equal(t, want, w.got)
		resumed := values.New(g, part(0).Device())
		resumed.Resume(v.Done, v.Series)
		v, w = resumed, lines{}
		v.To(&w)
		measure()
		require.Equal(t, []string{"1 map[y:3 z:2]", "1 map[z:4]"}, w.got)
		_, x := v.Of("x")
		require.Equal(t, []float64{1, 2}, x)
		return nil
	})
}
