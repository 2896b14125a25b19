package dist_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

func runAxes(n int, fn func(r *dist.Rank) error) error {
	return dist.Run(context.Background(), dist.Config{Ranks: n, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error { return fn(r) })
}

// mustHave returns an error if a group has other axes.
func mustHave(g *dist.Group, want tensor.Axes) error {
	if got := g.Axes(); got != want {
		return fmt.Errorf("group %s has axes %b, want %b", g.Name(), got, want)
	}
	return nil
}

// The first mesh over all ranks decides the axes. A group has those that its members span.
func TestAxes(t *testing.T) {
	err := runAxes(8, func(r *dist.Rank) error {
		m, err := r.Mesh("dp=4,one=1,tp=2")
		if err != nil {
			return err
		}
		coarse, err := r.Mesh("a=4,b=2")
		if err != nil {
			return err
		}
		fine, err := r.Mesh("edp=2,ep=2,tp=2")
		if err != nil {
			return err
		}
		pair, err := r.World.Split(r.World.Rank()%2, -r.World.Rank())
		if err != nil {
			return err
		}
		diagonal, err := r.World.Split([]int{0, 1, 1, 0, 2, 3, 3, 2}[r.World.Rank()], 0)
		if err != nil {
			return err
		}
		for _, c := range []struct {
			g    *dist.Group
			want tensor.Axes
		}{
			{m.Group("dp"), 1}, {m.Group("tp"), 2}, {m.Group("dp", "tp"), 3}, {m.Group("one"), 0}, {r.World, 3}, {r.World.With(), 3},
			{coarse.Group("b"), 2}, {fine.Group("tp"), 2}, {fine.Group("ep"), 0}, {fine.Group("edp", "ep"), 1}, {pair, 1}, {diagonal, 0},
		} {
			if err := mustHave(c.g, c.want); err != nil {
				return err
			}
		}
		return nil
	})
	assert.NoError(t, err)
}

// If Axes is called before there is a mesh, there is one axis of all ranks, which stays.
func TestAxesWithoutMesh(t *testing.T) {
	err := runAxes(4, func(r *dist.Rank) error {
		if err := mustHave(r.World, 1); err != nil {
			return err
		}
		m, err := r.Mesh("dp=2,tp=2")
		if err != nil {
			return err
		}
		if err := mustHave(m.Group("tp"), 0); err != nil {
			return err
		}
		return mustHave(m.Group("dp", "tp"), 1)
	})
	assert.NoError(t, err)
	assert.NoError(t, runAxes(1, func(r *dist.Rank) error { return mustHave(r.World, 0) }))
}

// The error of a job names the axis, and says what to do.
func TestAxesInErrors(t *testing.T) {
	for _, how := range []string{"panic", "error"} {
		err := runAxes(4, func(r *dist.Rank) error {
			m, err := r.Mesh("dp=2,tp=2")
			if err != nil {
				return err
			}
			p := tensor.NewParam(tensor.Constant(1), 4, 2)
			p.SetName("w")
			p.Make(r.Device, tensor.Float64, 1)
			tape := tensor.NewTape(r.Device)
			x := tensor.New(r.Device, tensor.Float64, 3, 2).WithRows(tensor.Rows{Stride: 1, Over: m.Group("tp").Axes()})
			fn := func() { tensor.Linear(tape.Input(x), tape.Use(p), tensor.Tensor{}) }
			if how == "panic" {
				fn()
			}
			return tensor.Try(fn)
		})
		assert.ErrorContains(t, err, "linear float64[3,2], w float64[4,2]: axis tp: parameter w[4 2] is the same on all ranks", how)
		assert.ErrorContains(t, err, "; attach the parameter with ddp or fsdp over this axis", how)
	}
}
