package fsdp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// microLoss returns losses of microbatch m.
func microLoss(m int, f func(y, labels nn.T) nn.T) func(p place) nn.T {
	return func(p place) nn.T {
		x, labels := p.Batch(p.Tape, m).Samples(disttest.Dataset{DType: tensor.Float64, Features: width})
		return f(p.model.Forward(x), labels)
	}
}

func mean(m int) func(p place) nn.T {
	return microLoss(m, func(y, labels nn.T) nn.T { return nn.CrossEntropy(y, labels) })
}

// size is another loss, of the outputs alone.
func size(m int) func(p place) nn.T {
	return microLoss(m, func(y, _ nn.T) nn.T { return tensor.GlobalMean(y.Square()) })
}

// against is the loss for other labels, as of a second annotator.
func against(m int) func(p place) nn.T {
	return microLoss(m, func(y, labels nn.T) nn.T {
		other := make([]int64, labels.Len())
		for i, l := range tensor.Data[int64](labels) {
			other[i] = (l + 1) % classes
		}
		return nn.CrossEntropy(y, tensor.FromSlice(other, len(other)))
	})
}

const twice = "a microbatch of this step went through Backward 2 times, and others did not"

// programs are the losses of a step of three microbatches, each with a Backward of its own.
var programs = map[string]struct {
	losses []func(p place) nn.T
	want   string
}{
	"three microbatches":             {losses: []func(p place) nn.T{mean(0), mean(1), mean(2)}},
	"two losses each":                {losses: []func(p place) nn.T{mean(0), size(0), mean(1), size(1), mean(2), size(2)}},
	"another loss of the first":      {losses: []func(p place) nn.T{mean(0), size(0), mean(1), mean(2)}},
	"other labels":                   {losses: []func(p place) nn.T{mean(0), against(0), mean(1), mean(2)}},
	"all of them twice":              {losses: []func(p place) nn.T{mean(0), mean(1), mean(2), mean(2), mean(1), mean(0)}},
	"the last one again":             {losses: []func(p place) nn.T{mean(0), mean(1), mean(2), mean(2)}, want: twice},
	"the first one again":            {losses: []func(p place) nn.T{mean(0), mean(1), mean(2), mean(0)}, want: twice},
	"one of two losses again":        {losses: []func(p place) nn.T{mean(0), size(0), mean(1), size(1), mean(2), size(1)}, want: twice},
	"three times":                    {losses: []func(p place) nn.T{mean(1), mean(1), mean(0), mean(1), mean(2)}, want: "Backward 3 times"},
	"the first one, not the last":    {losses: []func(p place) nn.T{mean(0), mean(1), mean(0)}, want: twice},
	"always the first one":           {losses: []func(p place) nn.T{mean(0), mean(0), mean(0)}, want: "the rows of a step do not add up"},
	"one, and its loss with a scale": {losses: []func(p place) nn.T{mean(0), mean(1), mean(2), scaled(mean(2))}},
}

func scaled(loss func(p place) nn.T) func(p place) nn.T {
	return func(p place) nn.T { return loss(p).Scale(0.5) }
}

// stepOf makes steps of losses.
func stepOf(losses func(step int) []func(p place) nn.T) func(p place) ([]float64, error) {
	return func(p place) (values []float64, err error) {
		all := losses(p.Step)
		for i, loss := range all {
			l := loss(p)
			values = append(values, l.Item())
			if i < len(all)-1 {
				p.Tape.Backward(l, tensor.More())
			} else {
				p.Tape.Backward(l)
			}
			p.Tape.Reset()
		}
		return values, p.Optimizer.Step()
	}
}

// A microbatch that goes through Backward more often than the others is an error in the first step. Several losses of one are right. The
// short form has ddp and stage 3.
func TestMicrobatchesThatCountTwice(t *testing.T) {
	for name, c := range programs {
		for stage := range 4 { // 0 is ddp
			if (stage%3 == 0) == reliability.Long(t) {
				continue
			}
			t.Run(fmt.Sprintf("%s, stage %d", name, stage), func(t *testing.T) {
				j := job{training: training{Ranks: 2, Steps: 3, Micro: 3, Batch: 18}, model: newChain,
					cfg: fsdp.Config{DType: tensor.Float64, Stage: stage}}
				if stage == 0 {
					j.with = func(r *dist.Rank, n model) (nn.Params, error) {
						return ddp.Attach(r.World, n, ddp.Config{DType: tensor.Float64})
					}
				}
				j.step = stepOf(func(int) []func(p place) nn.T { return c.losses })
				if c.want == "" {
					j.run(t)
					return
				}
				j.whole().Refused(t, c.want)
			})
		}
	}
}

func TestLongMicrobatchesThatCountTwice(t *testing.T) {
	reliability.AsLong(t, TestMicrobatchesThatCountTwice)
}

// With CheckEvery, what begins later is found, too.
func TestMicrobatchesThatCountTwiceLater(t *testing.T) {
	j := job{training: training{Ranks: 2, Steps: 10, Micro: 3, Batch: 18}, model: newChain,
		cfg: fsdp.Config{DType: tensor.Float64, CheckEvery: 2}}
	j.step = stepOf(func(step int) []func(p place) nn.T {
		if step < 7 {
			return programs["three microbatches"].losses
		}
		return programs["the last one again"].losses
	})
	res, err := j.whole().Try()
	require.ErrorContains(t, err, twice)
	require.Len(t, res.Norms, 8)
}
