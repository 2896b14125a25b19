package autograd_test

import (
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// lengthsRun is a training of attention over sequences of 1 to 6 tokens. loss gets features [batch, 6, 8], lengths, and lengths of no rows.
func lengthsRun(mesh string, loss func(l *nn.Linear, x, lengths, bare nn.T) nn.T) disttest.Training {
	return disttest.Training{Mesh: mesh, Batch: 13, Attach: func(r *dist.Rank, m *dist.Mesh) (a disttest.Attached, err error) {
		l := nn.NewLinear(8, 8)
		if a.Norm, a.Data = r.World, r.World; m == nil {
			a.Params = nn.Init(l, r.Device, tensor.Float64, 3)
		} else {
			a.Params, err = ddp.Attach(r.World, l, ddp.Config{DType: tensor.Float64, Seed: 3})
		}
		a.Loss = func(b disttest.Batch) nn.T {
			x, n := make([]float64, b.N*48), make([]int64, b.N)
			for i := range n {
				k := b.First + i
				n[i] = int64(1 + k*5%6)
				for j := range 48 {
					x[48*i+j] = float64((k*7+j*j*(k+1))%13)/6 - 1
				}
			}
			lengths := tensor.FromSlice(n, b.N)
			return loss(l, b.Tape.Input(tensor.FromSlice(x, b.N, 6, 8).WithRows(b.Rows)), b.Tape.Input(lengths.WithRows(b.Rows)),
				b.Tape.Input(lengths))
		}
		return a, err
	}}
}

// attend returns attention of x without padding. turn is called with x, and with the result.
func attend(l *nn.Linear, x, lengths nn.T, before, after func(nn.T) nn.T) nn.T {
	u := ops.Unpad(x.Slice(2, 0, 1).Reshape(-1, 6), lengths)
	y := l.Forward(u.Remove(before(x)))
	return u.Restore(after(ops.CrossAttention(y, y, y, 4, ops.AttentionOptions{Unpadded: u}))).Slice(1, 0, 1)
}

// turned has the rows of this rank in another order.
func turned(x nn.T) nn.T { return tensor.Concat(0, x.Slice(0, 1, x.Dim(0)), x.Slice(0, 0, 1)) }

// Sequences without padding, of ranks that have other rows, train as on one rank, also with lengths that do not say which rows they are of.
func TestUnpaddedRows(t *testing.T) {
	same := func(x nn.T) nn.T { return x }
	for _, bare := range []bool{false, true} {
		loss := func(l *nn.Linear, x, lengths, none nn.T) nn.T {
			if bare {
				lengths = none
			}
			return tensor.GlobalMean(ops.Dropout(attend(l, x, lengths, same, same), 0.2, 1).Square())
		}
		want := lengthsRun("", loss).Run(t)
		for _, mesh := range []string{"dp=2", "dp=3"} {
			disttest.RequireEqual(t, want, lengthsRun(mesh, loss).Run(t), 1e-10)
		}
	}
	for op, loss := range map[string]func(l *nn.Linear, x, lengths, _ nn.T) nn.T{
		"embedding, where other rows": func(l *nn.Linear, x, lengths, _ nn.T) nn.T { return attend(l, x, lengths, turned, same).Square().Sum() },
		"where other rows of":         func(l *nn.Linear, x, lengths, _ nn.T) nn.T { return attend(l, x, lengths, same, turned).Square().Sum() },
		"cross_attention, which mixes rows": func(l *nn.Linear, x, lengths, _ nn.T) nn.T {
			y := l.Forward(turned(x))
			return ops.CrossAttention(y, y, y, 4, ops.AttentionOptions{KeyLengths: lengths}).Square().Sum()
		},
	} {
		lengthsRun("", loss).Run(t)
		lengthsRun("dp=2", loss).Refused(t, op)
	}
}
