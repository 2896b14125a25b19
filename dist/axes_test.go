package dist_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/layout"
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
		m := disttest.Must(r.Mesh("dp=4,one=1,tp=2"))
		coarse := disttest.Must(r.Mesh("a=4,b=2"))
		disttest.Must(r.Mesh("all=8"))
		pair := disttest.Must(r.World.Split(r.World.Rank()%2, -r.World.Rank()))
		diagonal := disttest.Must(r.World.Split([]int{0, 1, 1, 0, 2, 3, 3, 2}[r.World.Rank()], 0))
		for _, c := range []struct {
			g    *dist.Group
			want tensor.Axes
		}{
			{m.Group("dp"), 1}, {m.Group("tp"), 2}, {m.Group("dp", "tp"), 3}, {m.Group("one"), 0}, {r.World, 3}, {r.World.With(), 3},
			{coarse.Group("b"), 2}, {pair, 1}, {diagonal, 0},
		} {
			disttest.OK(mustHave(c.g, c.want))
		}
		p, last := tensor.NewParam(tensor.Constant(1), 4, 2), r.World.Rank()/2
		p.Place(pair.Axis(), layout.Division{})
		assert.Equal(t, 3-last, p.Placement().Boxes()[0].Lo[0], "the group counts its ranks from the end")
		err := tensor.Try(func() { p.Place(diagonal.Axis(), layout.Division{Dim: 1}) })
		assert.ErrorContains(t, err, "a group of 2 ranks that is no axis of the job: make the first Mesh of the job with an axis for it")
		return nil
	})
	assert.NoError(t, err)
}

// A mesh with axes that the job does not have is an error that says what fixed those it has: along them, types would not be checked.
func TestLateMesh(t *testing.T) {
	for name, c := range map[string]struct {
		ranks int
		first func(r *dist.Rank)
		spec  string
		want  string
	}{
		"axes": {4, func(r *dist.Rank) { r.World.Axes() }, "dp=2,tp=2",
			"axis dp is no axis of the job, which are world=4: a use of all ranks (at "},
		"rows": {4, func(r *dist.Rank) { r.World.Rows(0, 4) }, "tp=2,dp=2",
			"axis tp is no axis of the job, which are world=4: a use of all ranks"},
		"loader": {2, func(r *dist.Rank) { r.World.With(dist.Name("data")).Axes() }, "dp=1,tp=2", ""},
		"coarser": {8, func(r *dist.Rank) { r.Mesh("dp=2,model=4") }, "dp=2,ep=2,tp=2",
			`axis ep is no axis of the job, which are dp=2,model=4: mesh "dp=2,model=4" fixed them`},
		"finer":  {8, func(r *dist.Rank) { r.Mesh("edp=2,ep=2,tp=2") }, "dp=4,tp=2", ""},
		"across": {4, func(r *dist.Rank) { r.Mesh("dp=2,tp=2") }, "all=4", ""},
		"other":  {6, func(r *dist.Rank) { r.Mesh("dp=2,tp=3") }, "dp=3,tp=2", "axis dp is no axis of the job, which are dp=2,tp=3"},
		"same":   {4, func(r *dist.Rank) { r.World.Axes() }, "dp=4,tp=1", ""},
		"one":    {1, func(r *dist.Rank) { r.World.Axes() }, "dp=1,tp=1", ""},
		"many":   {512, func(*dist.Rank) {}, "a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2,i=2", "has 9 axes of more than one rank; at most 8 are allowed"},
	} {
		err := runAxes(c.ranks, func(r *dist.Rank) error {
			c.first(r)
			_, err := r.Mesh(c.spec)
			return err
		})
		if c.want == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, c.want, name)
		}
	}
	assert.NoError(t, runAxes(1, func(r *dist.Rank) error { return mustHave(r.World, 0) }))
}

// The error of a job names the axis, and says what to do.
func TestAxesInErrors(t *testing.T) {
	for _, how := range []string{"panic", "error"} {
		err := runAxes(4, func(r *dist.Rank) error {
			m := disttest.Must(r.Mesh("dp=2,tp=2"))
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
