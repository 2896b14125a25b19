package cp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// told returns what two steps on two rows of positions log, with a loss of all losses of this rank's positions [rows, positions].
func told(t *testing.T, ranks int, mesh string, positions int, loss func(l nn.T) nn.T) string {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	cfg := dist.Config{Ranks: ranks, Threads: 1, Log: io.Discard}
	require.NoError(t, dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
		m := disttest.Must(r.Mesh(mesh))
		f := &cp.Ring{Group: m.Group("cp"), HeadDim: 4}
		model := nn.NewLinear(3, 1)
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64}))
		dp, tape := m.Group("dp"), tensor.NewTape(r.Device)
		rows := 2 / dp.Size()
		for range 2 {
			x := tensor.New(r.Device, tensor.Float64, rows, positions, 3)
			for i := range x.Len() {
				tensor.Data[float64](x)[i] = math.Sin(float64(dp.Rank()*x.Len() + i))
			}
			disttest.OK(tensor.Try(func() {
				y := model.Forward(tape.Input(f.Part(x.WithRows(dp.Rows(rows*dp.Rank(), 2)))))
				tape.Backward(loss(y.Square()))
			}))
			for _, p := range params {
				p.Consume()
			}
			tape.Reset()
		}
		return nil
	}))
	return log.String()
}

// Positions are divided evenly, so ranks have the same factors if they divide by the number of their own. This is a warning.
func TestFactorsOfOwnPositions(t *testing.T) {
	meshes := map[string]int{"dp=1,cp=2": 2, "dp=2,cp=2": 4}
	for name, loss := range map[string]func(l nn.T) nn.T{
		"by own elements":              func(l nn.T) nn.T { return l.Sum().Scale(1 / float64(l.Len())) },
		"by positions of all rows":     func(l nn.T) nn.T { return l.Sum().Scale(1 / float64(2*l.Dim(1))) },
		"of two elements each":         func(l nn.T) nn.T { return tensor.Concat(2, l, l).Sum().Scale(1 / float64(2*l.Len())) },
		"a sum of each row, then rows": func(l nn.T) nn.T { return l.Sum(1).Sum().Scale(1 / float64(l.Len())) },
	} {
		for mesh, ranks := range meshes {
			assert.Contains(t, told(t, ranks, mesh, 12, loss), "a rank's own rows, or of its positions", "%s, %s", name, mesh)
		}
	}
	meshes["dp=1,cp=1"] = 1
	for name, loss := range map[string]func(l nn.T) nn.T{
		"a mean of all":          nn.GlobalMean,
		"the count of all":       func(l nn.T) nn.T { return l.Sum().Scale(1 / float64(tensor.GlobalCount(l))) },
		"all positions, by hand": func(l nn.T) nn.T { return l.Sum().Scale(1 / 24.) },
		"by rows":                func(l nn.T) nn.T { return l.Sum().Scale(1 / 2.) },
		"with a mask":            func(l nn.T) nn.T { return ops.Clamp(l, 0, 1).Sum().Scale(1. / 7) },
	} {
		for mesh, ranks := range meshes {
			assert.Empty(t, told(t, ranks, mesh, 12, loss), "%s, %s", name, mesh)
		}
	}
	assert.Empty(t, told(t, 4, "dp=2,cp=2", 4, func(l nn.T) nn.T { return l.Sum().Scale(1 / 2.) }), "rows, as many as positions of a rank")
}
