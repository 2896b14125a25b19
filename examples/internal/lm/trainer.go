package lm

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// trainer is one rank.
type trainer struct {
	o     Options
	r     *dist.Rank
	text  *corpus
	stats *dist.Group // for sums that are printed
	model *gpt.Model
	count int // parameters of the whole model
	*parallel.Attached
	stages   *stages // nil without -pp
	opt      *optim.Optimizer
	balancer *moe.Balancer
	tape     *tensor.Tape
	eval     *tensor.Tape
	learn    *data.Loader
	test     *data.Loader
	tests    int // sequences
	loop     *train.Loop

	wall time.Time
	spent
}

// spent holds the costs of training steps, without validation, text, and the start.
type spent struct {
	time   time.Duration
	waited time.Duration     // for others
	sent   map[string]uint64 // bytes, by operation
	layers []uint64          // bytes, by layer with experts
}

func newTrainer(ctx context.Context, o Options, dtype tensor.DType, r *dist.Rank, text *corpus) (*trainer, error) {
	if err := o.fill(r.World.Size()); err != nil {
		return nil, err
	}
	t := &trainer{o: o, r: r, wall: time.Now(), spent: spent{sent: map[string]uint64{}}, text: text, stats: r.World.With(dist.Name("stats")),
		tests: text.test.Len()}
	var err error
	if t.model, err = o.model(); err != nil {
		return nil, err
	}
	t.count = nn.ParamsOf(t.model).Count()
	if t.Attached, t.stages, err = o.parallelize(r, t.model, dtype); err != nil {
		return nil, err
	}
	at := r.Device
	if t.stages != nil { // microbatches are cut on the host
		at = nil
	}
	t.layers = make([]uint64, len(t.Experts))
	t.tape = tensor.NewTape(r.Device, tensor.Seed(o.seed), tensor.Trace(r.Trace))
	t.eval = tensor.NewTape(r.Device, tensor.NoGrad(), tensor.Eval(), tensor.Trace(r.Trace))
	t.balancer = moe.NewBalancer(o.bias, layersOf(t.model)...)
	t.learn = data.NewLoader(text.learn, data.Config{Batch: o.batch, Shuffle: true, Seed: o.seed, Sharder: t.Data, Device: at})
	t.test = data.NewLoader(text.test, data.Config{Batch: 16, Sharder: t.Data, Device: at})
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// start fills the model and begins the loop.
func (t *trainer) start(ctx context.Context) error {
	params, base, err := t.base(ctx)
	if err != nil {
		return err
	}
	var norm optim.Norm // sums over the ranks that have other gradients
	if t.Shards != nil || t.o.tp > 1 || t.o.ep > 1 || t.stages != nil {
		norm = t.stats
	}
	t.opt = t.o.optimizer(t.Params, norm)
	files, err := t.files()
	if err != nil {
		return err
	}
	want := t.o.shape(t.model.Config)
	have := want
	st := ckpt.State{Params: params, Optimizer: t.opt, Tape: t.tape, Extra: map[string]any{"model": &have}, Files: files, Base: base}
	if t.loop, err = train.Start(ctx, t.r, &t.o.Options, st); err != nil {
		return err
	}
	if have != want {
		return train.Usagef("-resume: the checkpoint is of a model with %s, not %s", have, want)
	}
	if t.stages != nil {
		return t.startStages()
	}
	return nil
}

// fit trains, and measures the validation loss at intervals and at the end.
func (t *trainer) fit(ctx context.Context) error {
	const every = 250
	start := t.now()
	for step, b := range t.loop.Batches(t.learn, t.o.steps) {
		if err := t.step(b); err != nil {
			return err
		}
		if (step+1)%every == 0 || step+1 == t.o.steps {
			t.add(t.now(), start)
			if err := t.validate(ctx, step); err != nil {
				return err
			}
			start = t.now()
		}
	}
	done, _ := t.loop.Done()
	if measured, _ := t.loop.Values(valLoss); t.loop.Going() && (len(measured) == 0 || measured[len(measured)-1] != done) {
		return t.validate(ctx, done-1) // resumed after the last step
	}
	return nil
}

// step does a step on this rank's part of a batch.
func (t *trainer) step(b data.Batch) error {
	if t.stages != nil {
		loss, err := t.pass(t.stages.train, b)
		if err != nil {
			return err
		}
		t.loop.Sum("loss", tensor.ToDevice(t.r.Device, tensor.FromSlice([]float64{loss}, 1)))
		return t.opt.Step()
	}
	loss := t.Loss(t.model.Forward(t.tape.Input(t.Part(b.X))), t.Part(b.Y)) // this rank's part of the mean
	t.loop.Sum("loss", t.once(loss))
	t.tape.Backward(loss)
	err := t.opt.Step()
	t.tape.Reset()
	return errors.Join(err, t.balance())
}

// once is x on one of the ranks with the same rows, and 0 on the others.
func (t *trainer) once(x nn.T) nn.T {
	if t.Layers.Rank() == 0 {
		return x
	}
	return x.Scale(0)
}

// now returns this rank's costs so far.
func (t *trainer) now() spent {
	s := spent{time: time.Since(t.wall), sent: map[string]uint64{}, layers: make([]uint64, len(t.Experts))}
	for i, g := range t.Experts {
		s.layers[i] = g.Stats().WireBytes()
	}
	for _, g := range t.Groups {
		s.waited += g.Waited()
		for op, n := range g.Stats().Wire {
			s.sent[op] += n
		}
	}
	return s
}

// add adds the costs since a moment.
func (s *spent) add(now, since spent) {
	s.time += now.time - since.time
	s.waited += now.waited - since.waited
	for i, n := range now.layers {
		s.layers[i] += n - since.layers[i]
	}
	for op, n := range now.sent {
		s.sent[op] += n - since.sent[op]
	}
}

// valLoss is the name of the value that validate measures.
const valLoss = "validation loss"

// validate measures the loss on the validation part of the text after a step.
func (t *trainer) validate(ctx context.Context, step int) error {
	sum := []float64{0} // of the losses of sequences
	for _, b := range t.test.Epoch(ctx, 0) {
		loss, err := t.measure(b)
		if err != nil {
			return err
		}
		sum[0] += loss * float64(b.Global)
	}
	if err := t.test.Err(); err != nil {
		return err
	}
	if err := t.stats.SumFloats(sum); err != nil {
		return err
	}
	t.loop.Log(valLoss, sum[0]/float64(t.tests))
	if err := t.loop.Flush(); err != nil {
		return err
	}
	_, losses := t.loop.Values("loss") // after a rebuild one may be missing
	t.loop.Logf("step %d  loss %.4f  validation loss %.4f", step+1, losses[len(losses)-1], sum[0]/float64(t.tests))
	return nil
}

// measure returns this rank's part of the loss of a batch.
func (t *trainer) measure(b data.Batch) (float64, error) {
	if t.stages != nil {
		return t.pass(t.stages.eval, b)
	}
	loss := t.once(t.Loss(t.model.Forward(t.eval.Input(t.Part(b.X))), t.Part(b.Y))).Item()
	t.eval.Reset()
	return loss, nil
}

// write returns a text written by the model. All ranks take part, and get the same text.
func (t *trainer) write() string {
	var text strings.Builder
	s := decode.Sampling{Tokens: t.o.sample, Temperature: 0.8, Seed: t.o.seed}
	if t.o.sample == 0 || t.stages != nil {
		return ""
	}
	for id := range t.model.Generate(t.r.Device, t.text.Prompt("\n"), s) {
		text.WriteString(t.text.Piece(id))
	}
	return text.String()
}
