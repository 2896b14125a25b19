package moe

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Balancer looks at which experts are chosen, and moves the biases that choose them.
type Balancer struct {
	layers []*Layer
	rate   float64
	group  *dist.Group // nil: one rank
}

// NewBalancer returns the Balancer of layers. In each Step the bias of an expert that more than the mean number of slots chose goes down
// by rate, that of one with less up (Wang et al. 2024); DeepSeek-V3's rate is 0.001. With rate 0 biases stay, and layers may have none.
// Call it after Parallelize.
func NewBalancer(rate float64, layers ...*Layer) *Balancer {
	b := &Balancer{layers: layers, rate: rate}
	for i, l := range layers {
		switch {
		case l.Router.Bias == nil && rate != 0:
			fail("NewBalancer", "layer %d has no bias to move: router.Config.Bias", i)
		case l.c.Router.Forced && rate != 0:
			fail("NewBalancer", "layer %d does not choose its experts (router.Config.Forced): no bias changes that", i)
		case l.ranks.Tokens != layers[0].ranks.Tokens:
			fail("NewBalancer", "layers 0 and %d have tokens of different ranks", i)
		}
		b.group = l.ranks.Tokens
	}
	return b
}

// Step is called once after each step of the optimizer, by all ranks, also by those without tokens: it adds up over ranks and
// microbatches how often experts were chosen since the last Step, moves biases, and returns the load of each layer.
func (b *Balancer) Step() ([]Load, error) {
	if len(b.layers) == 0 {
		return nil, nil
	}
	loads, all := make([]Load, len(b.layers)), []int64(nil)
	for _, l := range b.layers {
		n := l.Router.W.Dims()[0] + 1
		if l.load.IsZero() { // no step yet
			all = append(all, make([]int64, n)...)
			continue
		}
		all = append(all, tensor.Data[int64](tensor.ToHost(l.load))...)
	}
	if err := b.sum(all); err != nil {
		return nil, fmt.Errorf("moe: counts of experts: %w", err)
	}
	for i, l := range b.layers {
		n := l.Router.W.Dims()[0] + 1
		loads[i], all = Load{all[: n-1 : n-1], all[n-1], l.c.Router.Forced}, all[n:]
		if !l.load.IsZero() {
			tensor.Copy(l.load, tensor.ToDevice(l.load.Device(), tensor.FromSlice(make([]int64, n), n)))
		}
		if b.rate != 0 {
			if err := l.Router.UpdateBias(loads[i].Chosen, b.rate); err != nil {
				return nil, err
			}
		}
	}
	return loads, nil
}

// sum adds counts up over ranks.
func (b *Balancer) sum(counts []int64) error {
	if b.group == nil || b.group.Size() == 1 {
		return nil
	}
	x := tensor.ToDevice(b.group.Device(), tensor.FromSlice(counts, len(counts)))
	if err := b.group.SumTensor(x); err != nil {
		return err
	}
	copy(counts, tensor.Data[int64](tensor.ToHost(x)))
	return nil
}

// Load says which experts of a layer were chosen, over all ranks.
type Load struct {
	Chosen  []int64 // slots, by expert
	Dropped int64   // of these: Config.Capacity
	Forced  bool    // nobody chose: router.Config.Forced
}

// CV returns the coefficient of variation: the standard deviation of the experts' slots divided by their mean. 0 is balanced.
func (l Load) CV() float64 {
	var sum, square float64
	for _, n := range l.Chosen {
		sum += float64(n)
		square += float64(float64(n) * float64(n))
	}
	if sum == 0 {
		return 0
	}
	n := float64(len(l.Chosen))
	mean := sum / n
	return math.Sqrt(max(0, square/n-float64(mean*mean))) / mean
}

// Entropy returns the entropy, in nats, of the expert of a slot: the logarithm of the number of experts where they are balanced.
func (l Load) Entropy() (h float64) {
	sum := 0.0
	for _, n := range l.Chosen {
		sum += float64(n)
	}
	for _, n := range l.Chosen {
		if n > 0 {
			p := float64(n) / sum
			h -= float64(p * math.Log(p))
		}
	}
	return h
}

// count adds up which experts are chosen, and how many slots are dropped, in steps that train.
func (l *Layer) count(counts, dropped nn.T) {
	t := counts.Tape()
	if !t.Training() || t.Recomputing() {
		return
	}
	n := counts.Len()
	if l.load.IsZero() {
		l.load = tensor.New(t.Device(), tensor.Int64, n+1)
	}
	counts = ops.Pad(counts, 0, 0, 1)
	if !dropped.IsZero() {
		counts = counts.Add(ops.Pad(dropped.Sum().Reshape(1), 0, n, 0))
	}
	tensor.Copy(l.load, t.Input(l.load).Add(counts))
}
