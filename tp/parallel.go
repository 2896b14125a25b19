package tp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/internal/rebuild"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Config says which ranks divide layers, and how.
type Config struct {
	Group    *dist.Group // such as mesh.Group("tp")
	Sequence bool        // between the divided layers each rank has a part of the tokens
	Chunks   int         // with Sequence: layers work on a part of the tokens while others travel, in so many messages; 0: they wait
	// KV and Replicas, for fewer heads of keys and values than ranks: ranks of KV have other heads, ranks of Replicas the same ones.
	// KV has as many ranks as there are heads. Group has the ranks of both, those of Replicas side by side: mesh.Group("kv", "same").
	// nil: every rank has heads of its own.
	KV, Replicas *dist.Group
}

// Parallel divides the layers of a model. What fails in its methods is the error of Parallelize.
type Parallel struct {
	Config
	in, out tensor.Function // before columns and behind rows
	counts  []int           // of tokens on each rank, for one call
	checks  *dist.Group     // the ranks of Config.Group, to compare what must be alike
	downs   []*tensor.Param // of adapters, which layers may share
}

// Parallelize calls divide, in which each layer is cut at most once. All other parameters of the model are whole on every rank. Call it
// before values are made: before nn.Init, ddp.Attach and the Attach of package fsdp. It is collective: all ranks of the group call it
// alike, with the same model. If a rank fails, or has another model, all return the same error. After an error the model is of no use.
func Parallelize(model any, c Config, divide func(p *Parallel)) error {
	if err := rebuild.Refuse("tp"); err != nil {
		return err
	}
	if c.Group == nil {
		return fmt.Errorf("tp: Config.Group is nil")
	}
	p := &Parallel{Config: c, counts: make([]int, c.Group.Size()), checks: c.Group.With(dist.Name("tp-checks"))}
	lines, err := p.lines(model)
	if err == nil {
		err = p.check()
	}
	if err == nil {
		err = p.divide(divide)
	}
	if err != nil {
		err = fmt.Errorf("tp: rank %d of %d: %w", c.Group.Rank(), c.Group.Size(), err)
	}
	return dist.Agree(p.checks, "tp", lines, err)
}

// lines says what the ranks must have alike: how they divide, settings of layers, and the parameters of the whole model. It gives these
// names.
func (p *Parallel) lines(model any) (lines []string, err error) {
	err = tensor.Try(func() {
		params := nn.ParamsOf(model)
		lines = []string{fmt.Sprintf("Config.Sequence=%v Chunks=%d", p.Sequence, p.Chunks), fmt.Sprintf("%d parameters", len(params))}
		for _, x := range params {
			lines = append(lines, fmt.Sprintf("parameter %s%v frozen=%v", x.Name(), x.Global(), x.Frozen()))
		}
		lines = append(lines, nn.SettingsOf(model)...)
	})
	return lines, err
}

// divide divides the layers of the model.
func (p *Parallel) divide(divide func(p *Parallel)) error {
	c := p.Config
	p.in, p.out = &autograd.Copy{Group: c.Group}, &autograd.Sum{Group: c.Group}
	if c.Sequence {
		p.in, p.out = p.sequence()
	}
	return tensor.Try(func() { divide(p) })
}

// check finds out whether the groups are one.
func (p *Parallel) check() error {
	switch {
	case p.Chunks < 0 || p.Chunks > 32 || p.Chunks > 0 && !p.Sequence:
		return fmt.Errorf("Config.Chunks is %d: it must be 0 to 32, and needs Config.Sequence", p.Chunks) // all are in flight
	case (p.KV == nil) != (p.Replicas == nil):
		return fmt.Errorf("set both Config.KV and Config.Replicas, or neither")
	case p.KV != nil && (p.KV.Size()*p.Replicas.Size() != p.Group.Size() || p.KV.Rank()*p.Replicas.Size()+p.Replicas.Rank() != p.Group.Rank()):
		return fmt.Errorf("rank %d of %d is %d of %d in KV and %d of %d in Replicas: Config.Group must be the group of both axes, Replicas last",
			p.Group.Rank(), p.Group.Size(), p.KV.Rank(), p.KV.Size(), p.Replicas.Rank(), p.Replicas.Size())
	}
	return nil
}

func fail(op, format string, a ...any) {
	panic(&tensor.Failure{Op: "tp." + op, Err: fmt.Errorf(format, a...)})
}

// entered is a layer, such as a norm, and what its output goes through before the columns that read it. It is behind the norm, and not in
// front of each of the columns, so that queries, keys and values share one gather: for this, Columns and Heads return a layer.
type entered struct {
	nn.Layer
	Then tensor.Function `nn:"-"`
}

// Forward returns what the columns read.
func (e *entered) Forward(x nn.T) nn.T {
	x = e.Layer.Forward(x)
	return x.Tape().Apply(e.Then, x)
}

// enter returns a layer whose output all ranks read for other columns.
func (p *Parallel) enter(op string, before nn.Layer) nn.Layer {
	if before == nil {
		fail(op, "there is no layer before the divided ones, such as a norm")
	}
	p.Norm(before)
	return &entered{before, p.in}
}

// Norm is for a layer, such as a norm, that works on each token between a Row and the next columns, and that is not before columns. With
// Config.Sequence it sums the gradients of its parameters over the ranks, of which each has that of its tokens.
func (p *Parallel) Norm(l nn.Layer) {
	if p.Sequence {
		for _, x := range nn.Within(l) {
			x.Through(&autograd.Copy{Group: p.Group})
		}
	}
}

// Between is Columns and Row in one, for a layer that divides itself over the ranks, such as a mixture of experts (moe.Ranks.Gather and
// Scatter), and reads what before, such as a norm, returns. Gather gives it the tokens of all ranks, and scatter leaves each rank its own
// of what the ranks' results add up to. Without Config.Sequence every rank has all tokens, and both are nil.
func (p *Parallel) Between(before nn.Layer) (gather, scatter tensor.Function) {
	if !p.Sequence {
		return nil, nil
	}
	p.Norm(before)
	return p.in, p.out
}

// Columns cuts the outputs of linear layers that all read what before, such as a norm, returns, and nothing else reads. It returns
// the layer to put in before's place. Outputs need not divide by the ranks: the first ranks have one more. Of a layer with Parts each
// part is cut. The layers' outputs are for a Row, or for CrossEntropy.
func (p *Parallel) Columns(before nn.Layer, layers ...*nn.Linear) nn.Layer {
	for _, l := range layers {
		p.columns(l, 0)
	}
	return p.enter("Columns", before)
}

// columns cuts the outputs of a layer, of which unit stay together.
func (p *Parallel) columns(l *nn.Linear, unit int) {
	d := layout.Division{Parts: l.Parts, Unit: unit}
	for _, x := range []*tensor.Param{l.W, l.B} {
		if x != nil && !x.IsCut() { // a tied weight is cut once
			x.Place(p.Group.Axis(), d)
		}
	}
	if a := l.Adapter; a != nil {
		a.Up.Place(p.Group.Axis(), d)
		p.down(a)
	}
}

// down sums gradients of an adapter's Down, where each rank has that of its outputs: once, also if layers share it.
func (p *Parallel) down(a *nn.Adapter) {
	if !slices.Contains(p.downs, a.Down) {
		p.downs = append(p.downs, a.Down)
		a.Down.Through(&autograd.Copy{Group: p.Group})
	}
}

// Row cuts the inputs of a linear layer, which come from Columns or Heads, or are one of Parts, and sums its outputs over the ranks, which
// all have its bias.
func (p *Parallel) Row(l *nn.Linear) {
	l.W.Place(p.Group.Axis(), layout.Division{Dim: 1})
	l.Post = p.out
	if a := l.Adapter; a != nil {
		a.Down.Place(p.Group.Axis(), layout.Division{Dim: 1})
		a.Up.Through(&autograd.Copy{Group: p.Group}) // each rank's gradient is that of its inputs
	}
	if p.Sequence && l.B != nil {
		l.B.Through(&autograd.Copy{Group: p.Group})
	}
}

// Heads is Columns for attention: of queries q, keys k and values v each rank gets whole heads of headDim features. The number of heads
// of queries divides by that of the ranks; that of keys and values does too, or by the ranks of Config.KV.
func (p *Parallel) Heads(before nn.Layer, headDim int, q, k, v *nn.Linear) nn.Layer {
	heads, kvHeads, ranks := q.W.Global()[0]/headDim, k.W.Global()[0]/headDim, p.Group.Size()
	kv := p.Group
	if p.KV != nil {
		kv = p.KV
	}
	switch {
	case heads%ranks != 0:
		fail("Heads", "%d heads of %s do not divide over %d ranks: the number of ranks must divide %d", heads, q.W.Name(), ranks, heads)
	case p.KV != nil && p.Replicas.Size() > 1 && kv.Size() != kvHeads: // a rank's queries would meet keys that are not theirs
		fail("Heads", "Config.KV has %d ranks and Config.Replicas %d, for %d heads of %s: with replicas, each rank has one head",
			kv.Size(), p.Replicas.Size(), kvHeads, k.W.Name())
	case kvHeads%kv.Size() != 0 && ranks%kvHeads == 0:
		fail("Heads", "%d heads of %s do not divide over %d ranks: give Config.KV and Config.Replicas, groups of %d and %d ranks",
			kvHeads, k.W.Name(), kv.Size(), kvHeads, ranks/kvHeads)
	case kvHeads%kv.Size() != 0:
		fail("Heads", "%d heads of %s do not divide over %d ranks: the number of ranks must divide %d, or be a multiple of it",
			kvHeads, k.W.Name(), kv.Size(), kvHeads)
	}
	p.columns(q, headDim)
	for _, l := range []*nn.Linear{k, v} {
		for _, x := range []*tensor.Param{l.W, l.B} {
			if x != nil {
				p.keyValue(x, kv, headDim)
			}
		}
		if a := l.Adapter; a != nil {
			p.keyValue(a.Up, kv, headDim)
			p.down(a)
		}
	}
	return p.enter("Heads", before)
}

// Attention is Heads for an nn.Attention, whose queries, keys and values are one matrix, Row for its output, and says where the heads of
// its dropout are. Its input is [batch, time, features], so that there is no Config.Sequence: for that, give attention layers of its own.
func (p *Parallel) Attention(before nn.Layer, a *nn.Attention) nn.Layer {
	heads, ranks := a.QKV.W.Global()[0]/(3*a.HeadDim), p.Group.Size()
	switch {
	case p.Sequence:
		fail("Attention", "%s: nn.Attention has no flat tokens, which Config.Sequence has", a.QKV.W.Name())
	case heads%ranks != 0:
		fail("Attention", "%d heads of %s do not divide over %d ranks: the number of ranks must divide %d", heads, a.QKV.W.Name(), ranks, heads)
	}
	p.columns(a.QKV, 0)
	p.Row(a.Out)
	if a.Drop != nil {
		p.Inside(a.Drop, heads)
	}
	return p.enter("Attention", before)
}

// keyValue cuts keys or values over KV. The ranks of Replicas use them for other queries, and each has the gradient of its own.
func (p *Parallel) keyValue(x *tensor.Param, kv *dist.Group, headDim int) {
	x.Place(kv.Axis(), layout.Division{Unit: headDim})
	if p.Replicas != nil && p.Replicas.Size() > 1 {
		x.Through(&autograd.Copy{Group: p.Replicas})
	}
}

// Vocab cuts a table of vectors into rows, the words. Each rank looks up its own, and the sum over the ranks has all. Behind it the
// tokens are whole on every rank; with Config.Sequence, Tokens divides them.
func (p *Parallel) Vocab(e *nn.Embedding) {
	if n := e.W.Global()[0]; n < p.Group.Size() {
		fail("Vocab", "a table of %d rows does not divide over %d ranks", n, p.Group.Size())
	}
	if !e.W.IsCut() { // as in columns
		e.W.Place(p.Group.Axis(), layout.Division{})
	}
	e.Post = &autograd.Sum{Group: p.Group}
}

// Tokens returns what leaves each rank its part of the tokens [tokens, features], before the first layer that is divided; nil without
// Config.Sequence.
func (p *Parallel) Tokens() tensor.Function {
	if !p.Sequence {
		return nil
	}
	return &split{autograd.Split{Group: p.Group}, p}
}

// Logits returns what joins the ranks' parts of logits [..., vocabulary], for texts: a loss of them is CrossEntropy's.
func (p *Parallel) Logits(vocabulary int) tensor.Function {
	return &autograd.Gather{Group: p.Group, Dim: -1, Counts: layout.Shares(make([]int, p.Group.Size()), vocabulary)}
}
