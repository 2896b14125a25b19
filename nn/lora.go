package nn

import (
	"path"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// LoRAConfig says how LoRA adapts a model.
type LoRAConfig struct {
	Rank    int
	Alpha   float64  // the product of the adapter is scaled by Alpha/Rank
	Targets []string // patterns of path.Match for names of Linears, such as "h.*.attn.qkv"; * matches dots, too
}

// Adapter is a low-rank addition to a Linear's weight: W + (alpha/r)·B·A (Hu et al. 2021, https://arxiv.org/abs/2106.09685).
// LoRA makes them.
type Adapter struct {
	A *tensor.Param `nn:"lora_A.weight"` // [r, in]
	B *tensor.Param `nn:"lora_B.weight"` // [out, r]

	scale  float64
	merged bool
}

// LoRA gives each Linear that a pattern matches an adapter, and freezes all other parameters. Call it before values are
// made. At first B is zero and A uniform in ±1/√in, so that the model computes what it did. It returns the adapters'
// parameters, named "<linear>.lora_A.weight" and "<linear>.lora_B.weight". It panics with a *tensor.Failure, and leaves the
// model as it was, for a rank or alpha that is not positive, a pattern that is malformed or matches no Linear, and a Linear
// that has values, has an adapter, or is cut by tensor parallelism.
func LoRA(model any, cfg LoRAConfig) Params {
	if cfg.Rank <= 0 || !(cfg.Alpha > 0) {
		fail("LoRA", "rank %d and alpha %v must be positive", cfg.Rank, cfg.Alpha)
	}
	base, found := ParamsOf(model), targets(walk(model).linears, cfg)
	for _, p := range base {
		p.Freeze()
	}
	for _, l := range found {
		out, in := l.W.Dims()[0], l.W.Dims()[1]
		l.Adapter = &Adapter{
			A:     tensor.NewParam(tensor.KaimingUniform(in), cfg.Rank, in),
			B:     tensor.NewParam(tensor.Constant(0), out, cfg.Rank),
			scale: cfg.Alpha / float64(cfg.Rank),
		}
	}
	return ParamsOf(model).Trainable()
}

// targets returns the Linears that the patterns match.
func targets(linears map[*Linear]string, cfg LoRAConfig) []*Linear {
	if len(cfg.Targets) == 0 {
		fail("LoRA", "there are no targets")
	}
	matched := map[*Linear]bool{}
	var found []*Linear
	for _, pattern := range cfg.Targets {
		hits := 0
		for l, name := range linears {
			ok, err := path.Match(pattern, name)
			if err != nil {
				fail("LoRA", "the target %q is no pattern: %v", pattern, err)
			}
			if !ok {
				continue
			}
			hits++
			if !matched[l] {
				checkTarget(l, name)
				matched[l], found = true, append(found, l)
			}
		}
		if _, err := path.Match(pattern, ""); err != nil || hits == 0 {
			fail("LoRA", "the target %q matches no Linear of the model", pattern)
		}
	}
	return found
}

func checkTarget(l *Linear, name string) {
	switch {
	case l.Adapter != nil:
		fail("LoRA", "%s has an adapter", name)
	case l.W.Value != (T{}):
		fail("LoRA", "%s has values; adapters come before them", name)
	}
	l.mustAdapt()
}

// mustAdapt refuses layers whose output or input is not that of the whole weight.
func (l *Linear) mustAdapt() {
	if l.Pre != nil || l.Post != nil || len(l.W.Shard.Boxes) > 0 {
		fail("LoRA", "%s is cut by tensor parallelism, or has Pre or Post; an adapter needs the whole layer",
			strings.TrimSuffix(l.W.Name(), ".weight"))
	}
}

// adapt returns y + (alpha/r)·(x·Aᵀ)·Bᵀ.
func (l *Linear) adapt(x, y T) T {
	a := l.Adapter
	if a == nil {
		return y
	}
	if a.merged {
		if x.Tape().Training() {
			fail("Forward", "the adapter of %s is merged and would not train; Unmerge first", l.W.Name())
		}
		return y
	}
	l.mustAdapt()
	t := tapeOf(x)
	low := tensor.Linear(x, t.Use(a.A), T{}).Scale(a.scale)
	return tensor.LinearAdd(low, t.Use(a.B), T{}, y)
}

// Merge adds the adapters of a model to the weights below them, so that Forward costs what it did without them.
// A merged model does not train: Forward on a training tape is refused.
// Parameters that belong to an Attach, such as fsdp's, are refused: merge a model of one rank.
func Merge(model any) { merge("Merge", model, true) }

// Unmerge takes Merge back. The weights are what they were, within rounding.
func Unmerge(model any) { merge("Unmerge", model, false) }

func merge(op string, model any, in bool) {
	linears := walk(model).linears
	for l, name := range linears {
		switch a := l.Adapter; {
		case a == nil:
			delete(linears, l)
		case a.merged == in:
			fail(op, "the adapter of %s is merged: %v", name, a.merged)
		case l.W.Owner() != nil || a.A.Owner() != nil:
			fail(op, "the parameters of %s belong to an Attach", name)
		}
	}
	for l := range linears {
		a := l.Adapter
		s := a.scale
		if !in {
			s = -s
		}
		t := tensor.NewTape(l.W.Value.Device(), tensor.NoGrad())
		sum := t.Use(l.W).Add(tensor.MatMul(t.Use(a.B), t.Use(a.A), false, false).Scale(s))
		tensor.Copy(l.W.Value, sum)
		l.W.Changed()
		a.merged = in
	}
}
