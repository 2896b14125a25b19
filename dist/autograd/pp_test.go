package autograd_test

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const ppWords, ppWidth, ppHidden, ppBlocks = 11, 6, 8, 4

// pipeline is a model that is cut into stages. Tok is the embedding of the first stage and the output layer of the last one.
type pipeline struct {
	Tok    *tensor.Param // nil on stages between them
	Blocks []*ppBlock    // a nil block is on another stage
	Norm   *nn.LayerNorm // on the last stage
}

type ppBlock struct {
	Norm     *nn.LayerNorm
	Up, Down *nn.Linear
	Drop     *nn.Dropout
}

func newPipeline(stage, stages int) *pipeline {
	m := &pipeline{Blocks: make([]*ppBlock, ppBlocks)}
	if stage == 0 || stage == stages-1 {
		m.Tok = tensor.NewParam(tensor.NormalInit(0, 1), ppWords, ppWidth)
	}
	for i := range m.Blocks {
		if i*stages/ppBlocks == stage {
			m.Blocks[i] = &ppBlock{nn.NewLayerNorm(ppWidth), nn.NewLinear(ppWidth, ppHidden), nn.NewLinear(ppHidden, ppWidth), nn.NewDropout(0.2)}
		}
	}
	if stage == stages-1 {
		m.Norm = nn.NewLayerNorm(ppWidth)
	}
	return m
}

func (m *pipeline) embed(t *tensor.Tape, ids nn.T) nn.T {
	return tensor.Embedding(t.Use(m.Tok), t.Input(ids))
}

// layers applies the blocks of this stage.
func (m *pipeline) layers(x nn.T) nn.T {
	for _, b := range m.Blocks {
		if b != nil {
			x = b.Forward(x)
		}
	}
	return x
}

func (m *pipeline) loss(x, labels nn.T) nn.T {
	return nn.CrossEntropy(tensor.Linear(m.Norm.Forward(x), x.Tape().Use(m.Tok), nn.T{}), labels)
}

func (b *ppBlock) Forward(x nn.T) nn.T {
	return x.Add(b.Drop.Forward(b.Down.Forward(b.Up.Forward(b.Norm.Forward(x)).GELU())))
}

// cut keeps only this rank's part of the hidden features.
func (m *pipeline) cut(tp *dist.Group) {
	n := ppHidden / tp.Size()
	lo, hi := n*tp.Rank(), n*(tp.Rank()+1)
	for _, b := range m.Blocks {
		if b == nil {
			continue
		}
		b.Up.W.Cut([]int{n, ppWidth}, tensor.Box{Lo: []int{lo, 0}, Hi: []int{hi, ppWidth}})
		b.Up.B.Cut([]int{n}, tensor.Box{Lo: []int{lo}, Hi: []int{hi}})
		b.Down.W.Cut([]int{ppWidth, n}, tensor.Box{Lo: []int{0, lo}, Hi: []int{ppWidth, hi}})
		b.Up.Pre, b.Down.Post = &autograd.Copy{Group: tp}, &autograd.Sum{Group: tp}
	}
	for _, p := range nn.ParamsOf(m) {
		if len(p.Shard.Boxes) > 0 {
			p.Lay(tp.Axes(), tensor.Cut)
		} else {
			p.NarrowCounts(tp.Rank() == 0)
		}
	}
}

// action is what a stage does: the forward pass (F), the backward pass (B) or the weight gradients (W) of a microbatch.
type action struct {
	what  byte
	micro int
}

// oneF1B is the schedule of PipeDream-Flush (Narayanan et al. 2021). A stage keeps at most as many microbatches as there are stages from
// it to the end. With deferred weight gradients, stages before the last one compute them later, at times when they would otherwise wait.
func oneF1B(stage, stages, micro int, deferred bool) (list []action) {
	lag, done := stages-1-stage, 0
	warm := min(lag, micro)
	for k := range warm {
		list = append(list, action{'F', k})
	}
	for k := range micro {
		if k+warm < micro {
			list = append(list, action{'F', k + warm})
		}
		list = append(list, action{'B', k})
		if deferred && k >= lag {
			list = append(list, action{'W', done})
			done++
		}
	}
	for ; deferred && done < micro; done++ {
		list = append(list, action{'W', done})
	}
	return list
}

// gpipe does all forward passes first (Huang et al. 2019).
func gpipe(_, _, micro int, deferred bool) (list []action) {
	for k := range micro {
		list = append(list, action{'F', k})
	}
	for k := range micro {
		list = append(list, action{'B', k})
	}
	for k := 0; deferred && k < micro; k++ {
		list = append(list, action{'W', k})
	}
	return list
}

// runner runs a stage. Each microbatch has a tape, on shared memory. Tensors are sent to other stages together with their types.
type runner struct {
	m        *pipeline
	pp, dp   *dist.Group
	micro    int
	rows     int // rows of a microbatch, on all ranks of dp
	deferred bool
	tapes    []*tensor.Tape
	in, out  []nn.T
	works    []dist.Work
	ends     func(x nn.T) nn.T                  // changes the output of a stage before it is sent
	got      func(x nn.T, ty tensor.Types) nn.T // makes the input of a stage from what comes, and its types
}

func newRunner(m *pipeline, pp, dp *dist.Group, micro int) *runner {
	e := &runner{m: m, pp: pp, dp: dp, micro: micro, rows: 5, in: make([]nn.T, micro), out: make([]nn.T, micro),
		ends: func(x nn.T) nn.T { return x }, got: nn.T.WithTypes}
	e.tapes = append(e.tapes, tensor.NewTape(pp.Device(), tensor.Seed(5)))
	for range micro - 1 {
		e.tapes = append(e.tapes, tensor.NewTape(pp.Device(), tensor.Seed(5), tensor.ShareMemory(e.tapes[0])))
	}
	return e
}

func (e *runner) first() bool { return e.pp.Rank() == 0 }
func (e *runner) last() bool  { return e.pp.Rank() == e.pp.Size()-1 }

// send begins to send x, after its types.
func (e *runner) send(x nn.T, to, micro int) {
	ty := x.Types().Bytes()
	e.works = append(e.works, e.pp.Send(tensor.FromSlice(ty[:], 3), to, micro), e.pp.Send(x, to, micro))
}

// recv returns what another stage sends for this rank's rows: an activation, or its gradient.
func (e *runner) recv(from, micro int) nn.T {
	first, n := disttest.Part(e.rows, e.dp.Rank(), e.dp.Size())
	ty, x := make([]uint8, 3), tensor.New(e.pp.Device(), tensor.Float64, n, ppWidth)
	must(e.pp.Recv(tensor.FromSlice(ty, 3), from, micro).Wait())
	must(e.pp.Recv(x, from, micro).Wait())
	types, err := tensor.TypesFromBytes([3]byte(ty))
	must(err)
	return e.got(x.WithRows(e.dp.Rows(micro*e.rows+first, e.micro*e.rows)), types)
}

// words returns this rank's words of a microbatch, and the words that follow them.
func (e *runner) words(step, micro int) (x, y nn.T) {
	first, n := disttest.Part(e.rows, e.dp.Rank(), e.dp.Size())
	a, b := make([]int64, n), make([]int64, n)
	for i := range n {
		at := (step*e.micro+micro)*e.rows + first + i
		a[i], b[i] = int64(at*at*7%ppWords), int64(at*5%ppWords)
	}
	return tensor.FromSlice(a, n).WithRows(e.dp.Rows(micro*e.rows+first, e.micro*e.rows)), tensor.FromSlice(b, n)
}

// forward returns the loss on the last stage, 0 on others.
func (e *runner) forward(step, k int) (loss float64) {
	t := e.tapes[k]
	t.SetStep(step, k)
	ids, labels := e.words(step, k)
	var x nn.T
	if e.first() {
		x = e.m.embed(t, ids)
	} else {
		e.in[k] = t.Leaf(e.recv(e.pp.Rank()-1, k))
		x = e.in[k]
	}
	x = e.m.layers(x)
	if !e.last() {
		e.out[k] = e.ends(x)
		e.send(e.out[k], e.pp.Rank()+1, k)
		return 0
	}
	e.out[k] = e.m.loss(x, labels)
	return e.out[k].Item()
}

func (e *runner) backward(k int) {
	t, opts := e.tapes[k], e.more(k)
	if e.deferred {
		opts = []tensor.BackwardOption{tensor.DeferWeights()}
	}
	if e.last() {
		t.Backward(e.out[k], opts...)
	} else {
		t.BackwardFrom([]nn.T{e.out[k]}, []nn.T{e.recv(e.pp.Rank()+1, k)}, opts...)
	}
	if !e.first() {
		e.send(t.GradOf(e.in[k]), e.pp.Rank()-1, k)
	}
}

func (e *runner) more(k int) []tensor.BackwardOption {
	if k < e.micro-1 {
		return []tensor.BackwardOption{tensor.More()}
	}
	return nil
}

// step runs the actions of a step, and returns the losses of its microbatches.
func (e *runner) step(step int, schedule []action) (losses []float64) {
	losses = make([]float64, e.micro)
	for _, a := range schedule {
		switch a.what {
		case 'F':
			losses[a.micro] = e.forward(step, a.micro)
		case 'B':
			e.backward(a.micro)
		case 'W':
			e.tapes[a.micro].RunDeferred(e.more(a.micro)...)
		}
	}
	for _, w := range e.works {
		must(w.Wait())
	}
	e.works = e.works[:0]
	for _, t := range e.tapes {
		t.Reset()
	}
	return losses
}
