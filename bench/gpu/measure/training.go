package measure

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// training is a model with all that a step needs.
type training struct {
	name   string
	params nn.Params
	opt    *optim.Optimizer
	tape   *tensor.Tape
	x, y   tensor.Tensor
	loss   func() tensor.Tensor
}

func (t *training) step(...tensor.Tensor) error {
	t.tape.Backward(t.loss())
	err := t.opt.Step()
	t.tape.Reset()
	return err
}

// losses does n steps and returns the loss before each.
func (t *training) losses(n int) (all []float64, err error) {
	for range n {
		loss := t.loss()
		all = append(all, loss.Item())
		t.tape.Backward(loss)
		err = errors.Join(err, t.opt.Step())
		t.tape.Reset()
	}
	return all, err
}

func measureMLP(m *meter) error {
	var failed error
	for _, batch := range []int{64, 256} {
		start := func(m *meter) *training { return m.mlp(batch) }
		_, err := m.addSteps("steps/s", 1, func() *training { return start(m) }, func(t *training) error { return m.likeCPU(t, start) })
		failed = errors.Join(failed, err)
	}
	return failed
}

// mlp is the small network.
func (m *meter) mlp(batch int) *training {
	net := nn.Sequential{nn.NewLinear(784, 512), nn.ReLU, nn.NewLinear(512, 512), nn.ReLU, nn.NewLinear(512, 10)}
	t := &training{name: fmt.Sprintf("batch %d", batch), params: nn.Init(net, m.dev, tensor.Float32, 1), tape: tensor.NewTape(m.dev)}
	t.opt = optim.NewSGD(t.params, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
	t.x, t.y = m.random(1, tensor.Float32, batch, 784), m.whole(2, 10, batch)
	t.loss = func() tensor.Tensor { return nn.CrossEntropy(net.Forward(t.tape.Input(t.x)), t.y) }
	return t
}

// likeCPU does five steps here and on the CPU, and compares the losses.
func (m *meter) likeCPU(t *training, start func(on *meter) *training) error {
	host := cpu.New(1)
	defer host.Close()
	want, err := start(&meter{dev: host, small: m.small}).losses(5)
	got, failed := t.losses(5)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-3*want[i]) {
			return fmt.Errorf("the losses are %.5v, on the CPU %.5v", got, want)
		}
	}
	return nil
}

// progress is the loss that plain steps reach.
type progress struct {
	steps       int
	first, loss float64
	within      float64 // of the loss: what captured steps may differ by
}

// addSteps measures a plain step and a captured one, if check finds the losses of plain steps right. It returns what they reach; no steps
// if they are wrong.
func (m *meter) addSteps(unit string, work float64, start func() *training, check func(t *training) error) (plain progress, err error) {
	t := start()
	if err := check(t); err != nil {
		return plain, fmt.Errorf("%s: %w", t.name, err)
	}
	done := t.opt.Steps()
	last, err := t.losses(1)
	if err != nil {
		return plain, err
	}
	plain = progress{steps: done, loss: last[0], within: 1e-3}
	failed := m.add(t.name, unit, work, unchecked, func() { must(t.step()) })
	return plain, errors.Join(failed, m.addCaptured("", unit, work, start(), plain))
}

// addCaptured measures a captured step of t, which is new.
func (m *meter) addCaptured(how, unit string, work float64, t *training, plain progress) error {
	captured := capture.New(m.dev, t.step)
	check := func() error { return t.replays(captured, plain) }
	return errors.Join(m.add(t.name+", captured"+how, unit, work, check, func() { must(captured.Run()) }), captured.Close())
}

// replays does as many captured steps, and compares the loss after them with that after plain steps.
func (t *training) replays(captured *capture.Step, plain progress) error {
	for range plain.steps {
		if err := captured.Run(); err != nil {
			return err
		}
	}
	got, err := t.losses(1)
	if err == nil && !(math.Abs(got[0]-plain.loss) <= plain.within*plain.loss) {
		err = fmt.Errorf("after %d steps the loss is %.5g, after plain ones %.5g", plain.steps, got[0], plain.loss)
	}
	return err
}

// unchecked is the check for results that are checked already.
func unchecked() error { return nil }

func measureGPT(m *meter) error {
	config, batch := gpt.Config{Vocab: 512, Positions: 128, Width: 256, Layers: 4, Heads: 4, Tied: true}, m.pick(16, 2)
	if m.small {
		config = tiny
	}
	_, err := m.language(config, batch)
	return err
}

// measureGPT2 also measures captured steps whose products use the fastest algorithms. These round otherwise, so their losses may differ by
// as much as PyTorch's.
func measureGPT2(m *meter) error {
	config, batch := m.gpt2()
	plain, err := m.language(config, batch)
	if plain.steps == 0 || m.dev.Host() {
		return err
	}
	plain.within = min(likePyTorch, sameFall*(plain.first-plain.loss)/plain.loss)
	return errors.Join(err, m.tuned(func(on *meter) error {
		return on.addCaptured(", tuned", "tokens/s", float64(batch*config.Positions), on.gpt(config, batch, tensor.BFloat16), plain)
	}))
}

// gpt2 is the model with 124M parameters, and its batch size.
func (m *meter) gpt2() (config gpt.Config, batch int) {
	if m.small {
		return tiny, 2
	}
	return gpt.Config{Vocab: 50304, Positions: 1024, Width: 768, Layers: 12, Heads: 12, Tied: true}, 32
}

var tiny = gpt.Config{Vocab: 64, Positions: 16, Width: 32, Layers: 2, Heads: 2, Tied: true}

// LossUnit is the unit of losses, which are not rates.
const LossUnit = "loss"

// comparison is how losses of a type are compared with PyTorch's: after some steps at a rate.
type comparison struct {
	steps int
	lr    float64
}

// compared are the steps of each type. At 3e-4 without a warm-up, a random model leaves every rounding far behind: with 16 bits, losses of
// the same program in another order differ by 9% after 20 steps. In float32 they do not.
var compared = map[tensor.DType]comparison{tensor.BFloat16: {5, 1e-5}, tensor.Float32: {20, 3e-4}}

// gpt is a language model with parameters of type t. Its steps are those whose losses are compared.
func (m *meter) gpt(config gpt.Config, batch int, dtype tensor.DType) *training {
	return m.gptOf(config, batch, dtype, func(model any) nn.Params { return nn.Init(model, m.dev, dtype, 1) })
}

// gptOf is gpt with parameters that values makes.
func (m *meter) gptOf(config gpt.Config, batch int, dtype tensor.DType, values func(model any) nn.Params) *training {
	net, err := gpt.New(config)
	must(err)
	t := &training{params: values(net), tape: tensor.NewTape(m.dev)}
	t.name = fmt.Sprintf("%d layers of %d, batch %d, length %d", config.Layers, config.Width, batch, config.Positions)
	t.opt = optim.NewAdamW(t.params, optim.AdamWConfig{LR: compared[dtype].lr, WeightDecay: 0.1, Clip: 1})
	t.x, t.y = m.whole(2, uint64(config.Vocab), batch, config.Positions), m.whole(3, uint64(config.Vocab), batch, config.Positions)
	t.loss = func() tensor.Tensor { return nn.CrossEntropy(net.Forward(t.tape.Input(t.x)), t.y) }
	return t
}

// language measures steps of a language model in bfloat16, if its losses are right, and those in float32 of a quarter of the batch.
func (m *meter) language(config gpt.Config, batch int) (plain progress, err error) {
	exact := m.gpt(config, max(batch/4, 2), tensor.Float32)
	exact.name += ", float32"
	if _, err := m.learns(exact, config, tensor.Float32); err != nil {
		return plain, err
	}
	var first float64
	plain, err = m.addSteps("tokens/s", float64(batch*config.Positions), func() *training { return m.gpt(config, batch, tensor.BFloat16) },
		func(t *training) (err error) {
			first, err = m.learns(t, config, tensor.BFloat16)
			return err
		})
	plain.first = first
	return plain, err
}

// firstLoss is the mean loss of a new model on random tokens. Its logits are normal with a variance of width·0.02², because the last norm
// leaves rows whose squares sum to the width, and the tied embedding has a deviation of 0.02. So it is more than that of guessing.
func firstLoss(c gpt.Config) float64 {
	return math.Log(float64(c.Vocab)) + float64(c.Width)*0.02*0.02/2
}

// nearFirst is how far the first loss may be from the mean.
const nearFirst = 0.03

// learns gives PyTorch the weights and tokens, does the steps that are compared, and adds rows with the losses.
func (m *meter) learns(t *training, config gpt.Config, dtype tensor.DType) (first float64, err error) {
	if m.exchange != "" {
		if err := t.export(filepath.Join(m.exchange, fmt.Sprintf("%s.%v", m.section, dtype))); err != nil {
			return 0, err
		}
	}
	steps := compared[dtype].steps
	losses, err := t.losses(steps + 1)
	if err != nil {
		return 0, err
	}
	first, last := losses[0], losses[steps]
	m.note(Row{What: t.name + ", first loss", Variant: "ringo", Unit: LossUnit, Median: first, Low: first, High: first})
	after := fmt.Sprintf("%s, loss after %d steps", t.name, steps)
	m.note(Row{What: after, Variant: "ringo", Unit: LossUnit, Median: last, Low: last, High: last})
	if want := firstLoss(config); !(math.Abs(first-want) < nearFirst) || !(last < first) {
		err = fmt.Errorf("%s: the first loss is %.5g, expected is %.5g, and after %d steps it is %.5g", t.name, first, want, steps, last)
	}
	return first, err
}

// learnt returns an error if the loss is impossible for a model after some steps.
func (t *training) learnt(config gpt.Config) error {
	losses, err := t.losses(1)
	if most := firstLoss(config) + nearFirst; err == nil && !(losses[0] < most) {
		err = fmt.Errorf("the loss is %.5g, that of a new model %.5g at most", losses[0], most)
	}
	return err
}

// export writes the weights as float32, in the order of the model, and the tokens and labels as int64.
func (t *training) export(path string) error {
	weights := make([]tensor.Tensor, len(t.params))
	for i, p := range t.params {
		weights[i] = p.Value
	}
	float := func(b []byte, x float64) []byte {
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
	}
	whole := func(b []byte, x float64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(x)) }
	return errors.Join(writeNumbers(path+".weights", float, weights...), writeNumbers(path+".tokens", whole, t.x, t.y))
}

func writeNumbers(path string, add func([]byte, float64) []byte, all ...tensor.Tensor) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var text []byte
	for _, x := range all {
		text = text[:0]
		for _, v := range tensor.Floats(x) {
			text = add(text, v)
		}
		if _, err := f.Write(text); err != nil {
			return err
		}
	}
	return f.Close()
}

// Ringo's losses and PyTorch's may differ by likePyTorch, as a part of the loss, and after some steps by sameFall at most, as a part of
// what the loss has lost: small steps change it by little more than 1%.
const (
	likePyTorch = 0.01
	sameFall    = 0.2
)

// Agreeing returns the rows of a section. If Ringo's losses differ from PyTorch's, Ringo's rates are left out.
func Agreeing(rows []Row) ([]Row, error) {
	var wrong error
	start := 0. // PyTorch's first loss; its case comes before that of the loss after some steps
	for _, r := range rows {
		i := slices.IndexFunc(rows, func(x Row) bool { return x.What == r.What && x.Variant != r.Variant })
		if r.Unit != LossUnit || r.Variant != "ringo" || i < 0 {
			continue
		}
		x, most := rows[i], likePyTorch*rows[i].Median
		if strings.HasSuffix(r.What, ", first loss") {
			start = x.Median
		} else {
			most = min(most, sameFall*(start-x.Median))
		}
		if !(math.Abs(r.Median-x.Median) <= most) {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %.5g, by PyTorch from the same weights %.5g", r.What, r.Median, x.Median))
		}
	}
	if wrong == nil {
		return rows, nil
	}
	return slices.DeleteFunc(rows, func(r Row) bool { return r.Variant == "ringo" && r.Unit != LossUnit }), wrong
}
