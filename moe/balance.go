package moe

import (
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// seed adds the losses of the router to Backward.
func (l *Layer) seed(y nn.T, r Routing, counts nn.T) nn.T {
	if l.c.Balance != 0 {
		scores := r.Scores
		if l.Router.c.Scoring == Sigmoid {
			scores = scores.Div(scores.Sum(1).Reshape(scores.Dim(0), 1).Affine(1, 1e-20))
		}
		n := float64(counts.Len())
		y = tensor.WithAux(y, tensor.GlobalMean(scores.Mul(l.parts(r, counts))).Scale(n*n), l.c.Balance)
	}
	if l.c.Z != 0 {
		y = tensor.WithAux(y, tensor.GlobalMean(r.Logits.LogSumExp().Square()), l.c.Z)
	}
	return y
}

// parts returns for each expert the part of all slots that chose it, over the ranks that share the batch; or for each token that of the
// slots of its sequence.
func (l *Layer) parts(r Routing, counts nn.T) nn.T {
	if l.c.Sequence > 0 {
		return l.partsOfSequences(r)
	}
	if l.ranks.Tokens != nil {
		counts = counts.Tape().Apply(l.ranks.tally, counts)
	}
	f := counts.Cast(r.Scores.DType())
	return f.Div(f.Sum().Clamp(1, math.Inf(1)))
}

// partsOfSequences is parts where a balance loss is of each sequence [tokens, experts].
func (l *Layer) partsOfSequences(r Routing) nn.T {
	rows, top, n := r.Experts.Dim(0), r.Experts.Dim(1), r.Scores.Dim(1)
	if rows%l.c.Sequence != 0 || r.Scores.Tape().Rows().Seq.Total != 0 {
		fail("Layer", "a balance loss of sequences of %d tokens: there are %d tokens, or a part of each sequence", l.c.Sequence, rows)
	}
	chosen := tensor.OneHot(r.Experts, n, r.Scores.DType()).Sum(1).Reshape(rows/l.c.Sequence, l.c.Sequence, n).Sum(1)
	part := chosen.Scale(1/float64(l.c.Sequence*top)).Reshape(rows/l.c.Sequence, 1, n)
	return part.Broadcast(rows/l.c.Sequence, l.c.Sequence, n).Reshape(rows, n)
}

// tally sums counts over the ranks with other tokens.
type tally struct {
	group *dist.Group
}

func (*tally) Name() string { return "moe.tally" }

func (f *tally) Forward(c *tensor.Ctx, in []nn.T) nn.T {
	y := c.Tape().NewLike(in[0])
	tensor.Copy(y, in[0])
	if err := f.group.AllReduce(y, dist.Sum).Wait(); err != nil {
		panic(&tensor.Failure{Op: f.Name(), Err: err})
	}
	return y
}

func (*tally) Backward(*tensor.Ctx, nn.T, []nn.T) {}

func (f *tally) Types(in []tensor.Types, _ tensor.Axes) ([]tensor.Types, error) {
	in[0] = in[0].With(f.group.Axes(), tensor.Invariant)
	return in[:1], nil
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
	counts = counts.Pad(0, 0, 1)
	if !dropped.IsZero() {
		counts = counts.Add(dropped.Sum().Reshape(1).Pad(0, n, 0))
	}
	tensor.Copy(l.load, t.Input(l.load).Add(counts))
}

// Load says which experts of a layer were chosen, over all ranks.
type Load struct {
	Chosen  []int64 // slots, by expert
	Dropped int64   // of these: Config.Capacity
}

// CV returns the coefficient of variation: the standard deviation of the experts' slots divided by their mean. 0 is balanced.
func (l Load) CV() float64 {
	var sum, square float64
	for _, n := range l.Chosen {
		sum += float64(n)
		square += float64(n) * float64(n)
	}
	if sum == 0 {
		return 0
	}
	n := float64(len(l.Chosen))
	mean := sum / n
	return math.Sqrt(max(0, square/n-mean*mean)) / mean
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
			h -= p * math.Log(p)
		}
	}
	return h
}

// Balancer looks at which experts are chosen, and moves the biases that choose them.
type Balancer struct {
	layers []*Layer
	rate   float64
	group  *dist.Group // nil: one rank
}

// NewBalancer returns the Balancer of layers. In each Step the bias of an expert that more than the mean number of slots chose goes down
// by rate, that of one with less up (Wang et al. 2024); DeepSeek-V3's rate is 0.001. With rate 0 biases stay, and layers may have none. Call it after
// Parallelize.
func NewBalancer(rate float64, layers ...*Layer) *Balancer {
	b := &Balancer{layers: layers, rate: rate}
	for i, l := range layers {
		switch {
		case l.Router.Bias == nil && rate != 0:
			fail("NewBalancer", "layer %d has no bias to move: RouterConfig.Bias", i)
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
		loads[i], all = Load{all[: n-1 : n-1], all[n-1]}, all[n:]
		if !l.load.IsZero() {
			tensor.Copy(l.load, tensor.ToDevice(l.load.Device(), tensor.FromSlice(make([]int64, n), n)))
		}
		if b.rate != 0 {
			if err := l.Router.move(loads[i], b.rate); err != nil {
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

// move changes the bias by rate.
func (r *Router) move(load Load, rate float64) error {
	v := r.Bias.Value
	if v.DType().IsHalf() {
		return fmt.Errorf("moe: the bias %s has 16 bits, which lose steps of %g: keep parameters in float32", r.Bias.Name(), rate)
	}
	total := int64(0)
	for _, n := range load.Chosen {
		total += n
	}
	bias := tensor.Floats(v)
	for e, n := range load.Chosen {
		switch d := n*int64(len(load.Chosen)) - total; {
		case d > 0:
			bias[e] -= rate
		case d < 0:
			bias[e] += rate
		}
	}
	x := tensor.ToDevice(v.Device(), tensor.FromSlice(bias, len(bias)))
	tape := tensor.NewTape(v.Device(), tensor.NoGrad())
	defer tape.Close()
	tensor.Copy(v, tape.Input(x).Cast(v.DType()))
	r.Bias.Changed()
	return nil
}
