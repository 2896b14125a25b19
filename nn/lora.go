package nn

import (
	"iter"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// LoRAConfig says how LoRA adapts a model.
type LoRAConfig struct {
	Rank   int
	Alpha  float64 // the product of an adapter is scaled by Alpha/Rank
	RSLoRA bool    // by Alpha/√Rank instead (Kalajdzievski 2023, https://arxiv.org/abs/2312.03732)
	// Targets are names of Linears, or patterns of path.Match such as "blocks.*.attn.?", in which * matches dots, too. The router of a mixture
	// of experts takes an adapter only from a target that ends in its name: "blocks.*.mlp.gate".
	Targets []string
	Save    []string // ends of names that modules have in files, such as "embed_tokens": PEFT's modules_to_save
}

// Adapter is a low-rank addition to a Linear's weight: W + Alpha/r·Up·Down (Hu et al. 2021, https://arxiv.org/abs/2106.09685, who
// call the matrices B and A). LoRA makes them. Names are PEFT's.
type Adapter struct {
	Down  *tensor.Param `nn:"lora_A.weight"` // [r, in]
	Up    *tensor.Param `nn:"lora_B.weight"` // [out, r]
	Alpha float64
	RS    bool // rank-stabilized: Alpha/√r

	base tensor.Tensor // of a merged one: the weight alone
}

// Inner is embedded by a layer that computes the product of a Linear for itself, such as the router of a mixture of experts. LoRA gives it
// an adapter if a target ends in its name. To Float8 and Matrices it is no Linear.
type Inner struct{ Linear }

// Product returns x·Wᵀ, and what the adapter adds, in the type of x.
func (l *Inner) Product(x T) T {
	return l.adapt(x, tensor.Linear(x, tapeOf(x).Use(l.W).Cast(x.DType()), T{}))
}

func (a *Adapter) scale() float64 {
	r := float64(a.Down.Dims()[0])
	if a.RS {
		r = math.Sqrt(r)
	}
	return a.Alpha / r
}

// merged reports whether the weight has the adapter in it.
func (a *Adapter) merged() bool { return !a.base.IsZero() }

// LoRA gives each Linear that is a target an adapter, and freezes all other parameters. Call it before values are made, that is,
// before Init and Attach. At first Up is zero and Down uniform in ±1/√in, so that the model computes what it did. It returns the
// adapters' parameters, named "<linear>.lora_A.weight" and "<linear>.lora_B.weight", and then those of the modules to Save: the only ones
// to train and to save. Modules to save are trained as a whole; their Linears get no adapters.
// Linears that files have as one matrix (GPT-2's c_attn) have one adapter, as in PEFT: they share Down, and each has its rows of Up.
// It panics with a *tensor.Failure, and leaves the model as it was, for a rank or alpha that is not positive, a pattern that is
// malformed or matches no Linear, a Linear that has values, has an adapter, or is cut by tensor parallelism, which comes later
// (package tp), a part of a matrix whose other parts are no targets, and a module to save that is none, or has a weight that is also
// another module's.
func LoRA(model any, cfg LoRAConfig) Params {
	if cfg.Rank <= 0 || !(cfg.Alpha > 0) {
		fail("LoRA", "rank %d and alpha %v must be positive", cfg.Rank, cfg.Alpha)
	}
	all := ParamsOf(model) // gives names in files
	w := walk(model)
	saved := w.saved(cfg.Save)
	found := slices.DeleteFunc(targets("LoRA", w.linears, cfg.Targets), func(l placedLinear) bool { return slices.Contains(saved, l.W) })
	rows := map[string]int{} // of the matrices of files, that are targets
	for _, l := range found {
		s := l.matrix()
		rows[s.Name] += s.Rows
	}
	for _, l := range found {
		switch s := l.matrix(); {
		case rows[s.Name] != s.Total:
			fail("LoRA", "%s is a part of %s, one matrix in files, which has one adapter: its other parts must be targets, too", l.name, s.Name)
		case l.Adapter != nil:
			fail("LoRA", "%s has an adapter", l.name)
		case !l.W.Value.IsZero():
			fail("LoRA", "%s has values; adapters come before them", l.name)
		}
		l.mustAdapt()
	}
	for _, p := range all {
		p.Freeze()
	}
	for _, p := range saved {
		p.Unfreeze()
	}
	var made Params
	downs := map[string]*tensor.Param{} // of those matrices
	for _, l := range found {
		out, in, name := l.W.Dims()[0], l.W.Dims()[1], l.matrix().Name
		if downs[name] == nil {
			downs[name] = tensor.NewParam(tensor.KaimingUniform(in), cfg.Rank, in)
			made = append(made, downs[name])
		}
		l.Adapter = &Adapter{Down: downs[name], Up: tensor.NewParam(tensor.Constant(0), out, cfg.Rank), Alpha: cfg.Alpha, RS: cfg.RSLoRA}
		made = append(made, l.Adapter.Up)
	}
	ParamsOf(model) // gives names
	return append(made, saved...)
}

// saved returns the parameters of the modules whose names in files end so, in the model's order.
func (w *walker) saved(ends []string) (saved Params) {
	hits := make([]bool, len(ends))
	names := map[*tensor.Param][]string{} // of the modules that a parameter is in
	for _, f := range slices.Concat(w.params, w.again) {
		names[f.param] = append(names[f.param], f.modules()...)
	}
	for _, f := range w.params {
		for i, end := range ends {
			at := slices.IndexFunc(names[f.param], func(name string) bool { return strings.HasSuffix(name, end) })
			if at < 0 || end == "" {
				continue
			}
			if again := slices.IndexFunc(w.again, func(o found) bool { return o.param == f.param }); again >= 0 {
				fail("LoRA", "the module %s cannot be saved: its weight is tied, as that of %s and of %s, which would change both",
					names[f.param][at], f.at.name, w.again[again].at.name)
			}
			if len(f.param.Stored()) > 1 {
				fail("LoRA", "the module %s cannot be saved: %s is several modules in files", names[f.param][at], f.at.name)
			}
			if hits[i] = true; !slices.Contains(saved, f.param) {
				saved = append(saved, f.param)
			}
		}
	}
	if i := slices.Index(hits, false); i >= 0 {
		fail("LoRA", "%q ends the name of no module of the model in files", ends[i])
	}
	return saved
}

// modules returns the names of the modules that a parameter is in, in files.
func (f found) modules() (names []string) {
	as, _ := f.stored()
	if as == nil {
		as = []tensor.Stored{{Name: f.at.name}}
	}
	name := as[0].Name
	for at := strings.LastIndexByte(name, '.'); at > 0; at = strings.LastIndexByte(name, '.') {
		name = name[:at]
		names = append(names, name)
	}
	return names
}

// Base returns the parameters of a model that are no adapters': those that the files of the model without adapters have.
func (ps Params) Base() Params {
	return slices.DeleteFunc(slices.Clone(ps), func(p *tensor.Param) bool {
		return strings.HasSuffix(p.Name(), ".lora_A.weight") || strings.HasSuffix(p.Name(), ".lora_B.weight")
	})
}

// placedLinear is a Linear and its name.
type placedLinear struct {
	*Linear
	name  string
	inner bool // of an Inner
}

func (l placedLinear) isInner() bool { return l.inner }

// matrix says which rows of which matrix of files a Linear is: all of its own, or some of one with several parts.
func (l placedLinear) matrix() tensor.Stored {
	if as := l.W.Stored(); len(as) == 1 && as[0].Rows < as[0].Total {
		return as[0]
	}
	return tensor.Stored{Name: l.name + ".", Rows: 1, Total: 1}
}

// Linears yields the Linears of a model with their names, in the model's order, those of Inners included.
func Linears(model any) iter.Seq2[string, *Linear] {
	return func(yield func(string, *Linear) bool) {
		for _, l := range walk(model).linears {
			if !yield(l.name, l.Linear) {
				return
			}
		}
	}
}

// noteLinear remembers v if it is a Linear.
func (w *walker) noteLinear(v reflect.Value, name string) {
	if in, ok := addressOf[Inner](v); ok {
		w.linears = append(w.linears, placedLinear{&in.Linear, name, true})
	} else if l, ok := addressOf[Linear](v); ok && (len(w.linears) == 0 || w.linears[len(w.linears)-1].Linear != l) { // not inside of that
		w.linears = append(w.linears, placedLinear{l, name, false})
	}
}

// isMerged reports whether v is an Adapter that is a part of its weight now, and no parameters of its own.
func isMerged(v reflect.Value) bool {
	a, ok := addressOf[Adapter](v)
	return ok && a.merged()
}

func addressOf[S any](v reflect.Value) (p *S, ok bool) {
	if v.Type() == reflect.TypeFor[S]() && v.CanAddr() && v.CanInterface() {
		p, ok = v.Addr().Interface().(*S)
	}
	return p, ok
}

// targets returns the Linears that the patterns match, in the model's order.
func targets(op string, linears []placedLinear, patterns []string) []placedLinear {
	if len(patterns) == 0 {
		fail(op, "there are no targets")
	}
	hits := make([]bool, len(patterns))
	found := slices.DeleteFunc(linears, func(l placedLinear) bool {
		target := false
		for i, pattern := range patterns {
			ok, err := path.Match(pattern, l.name)
			if err != nil {
				fail(op, "the target %q is not a valid pattern: %v", pattern, err)
			}
			ok = ok && (!l.inner || strings.HasSuffix(pattern, l.name[strings.LastIndexByte(l.name, '.')+1:]))
			target, hits[i] = target || ok, hits[i] || ok
		}
		return !target
	})
	if i := slices.Index(hits, false); i >= 0 {
		fail(op, "the target %q matches no Linear of the model", patterns[i])
	}
	return found
}

// mustAdapt refuses layers whose output or input is not that of the whole weight, unless the adapter has been divided as well: over one
// rank, nothing is cut, but the matrix that all ranks have goes through a Function.
func (l *Linear) mustAdapt() {
	a := l.Adapter
	divided := l.Pre != nil || l.Post != nil || l.W.IsCut()
	if divided && (a == nil || !a.Up.IsCut() && !a.Down.IsCut() && !a.Up.HasThrough() && !a.Down.HasThrough()) {
		fail("LoRA", "%s is cut by tensor parallelism, or has Pre or Post, and the adapter is not divided: give adapters first, then divide",
			strings.TrimSuffix(l.W.Name(), ".weight"))
	}
}

// adapt returns y + (alpha/r)·(x·Downᵀ)·Upᵀ.
func (l *Linear) adapt(x, y T) T {
	a := l.Adapter
	if a == nil {
		return y
	}
	if a.merged() {
		if x.Tape().Training() {
			fail("Forward", "the adapter of %s is merged and would not train; Unmerge first", l.W.Name())
		}
		return y
	}
	l.mustAdapt()
	t := tapeOf(x)
	low := tensor.Linear(x, t.Use(a.Down).Cast(x.DType()), T{}).Scale(a.scale())
	return tensor.LinearAdd(low, t.Use(a.Up).Cast(x.DType()), T{}, y)
}

// Merge adds the adapters of a model to the weights below them, so that Forward costs what it did without them and files have a
// model without adapters: ParamsOf no longer has them. A merged model does not train: Forward on a training tape is refused. The
// weights from before are kept for Unmerge. It panics with a *tensor.Failure, and changes nothing, where there is no adapter, one is
// merged, values are divided over ranks (as fsdp does: merge on one rank), or a weight is also another layer's.
func Merge(model any) {
	w := walk(model)
	merge("Merge", w, false, func(l placedLinear) {
		a := l.Adapter
		switch {
		case l.W.Value.IsZero() || l.W.Value != l.W.Local || a.Up.Value != a.Up.Local:
			fail("Merge", "%s has no values yet, or they are divided over ranks", l.name)
		case slices.ContainsFunc(w.again, func(f found) bool { return f.param == l.W }):
			fail("Merge", "the weight of %s is also another layer's, which would change", l.name)
		}
	}, func(l *Linear) {
		a, v := l.Adapter, l.W.Value
		a.base = tensor.NewFor(memory.Parameters, v.Device(), v.DType(), l.W.Dims()...)
		tensor.Copy(a.base, v)
		t := tensor.NewTape(v.Device(), tensor.NoGrad())
		defer t.Close()
		tensor.Copy(v, t.Use(l.W).Add(tensor.MatMul(t.Use(a.Up), t.Use(a.Down), false, false).Scale(a.scale())))
	})
}

// Unmerge takes Merge back: the weights have the bits that they had.
func Unmerge(model any) {
	merge("Unmerge", walk(model), true, func(placedLinear) {}, func(l *Linear) {
		tensor.Copy(l.W.Value, l.Adapter.base)
		l.Adapter.base = tensor.Tensor{}
	})
}

// merge calls do for each Linear with an adapter, after check for all of them.
func merge(op string, w *walker, merged bool, check func(placedLinear), do func(*Linear)) {
	linears := slices.DeleteFunc(w.linears, func(l placedLinear) bool { return l.Adapter == nil })
	if len(linears) == 0 {
		fail(op, "no Linear of the model has an adapter")
	}
	for _, l := range linears {
		if l.Adapter.merged() != merged {
			fail(op, "the adapter of %s is merged: %v", l.name, !merged)
		}
		check(l)
	}
	for _, l := range linears {
		do(l.Linear)
		l.W.Changed()
	}
}
