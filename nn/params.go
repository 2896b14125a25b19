package nn

import (
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// T is short for tensor.Tensor.
type T = tensor.Tensor

// Params is a model's parameters and buffers, in the order of its fields.
type Params []*tensor.Param

// ParamsOf returns the parameters and buffers of a model, a pointer to a struct, a Sequential or any other value that
// holds layers, and sets their names and whether files have them transposed (see the package comment), and the names of
// Dropouts. Call it on the whole model; for a part of one, use Within. It panics with a *tensor.Failure if two
// parameters have the same name. It also panics if the walk cannot reach a parameter: that one would not train, and nobody would notice.
func ParamsOf(model any) Params {
	w := walk(model)
	ps := make(Params, 0, len(w.params))
	taken := map[string]bool{}
	for _, f := range w.params {
		if f.at.name != "" { // the model is a parameter itself
			f.param.SetName(f.at.name)
		}
		f.setStored()
		if taken[f.param.Name()] {
			fail("ParamsOf", "two parameters have the name %q", f.param.Name())
		}
		taken[f.param.Name()] = true
		ps = append(ps, f.param)
	}
	checkStored(ps)
	for d, name := range w.dropouts {
		d.setName(name)
	}
	return ps
}

// Within returns the parameters and buffers of a part of a model. It leaves their names alone.
func Within(part any) Params {
	w := walk(part)
	ps := make(Params, len(w.params))
	for i, f := range w.params {
		ps[i] = f.param
	}
	return ps
}

// Init makes the values of all parameters and buffers of a model on dev, and returns them. They are a function of seed,
// name and shape alone. Parallel packages make values in their Attach instead.
func Init(model any, dev tensor.Device, dtype tensor.DType, seed uint64) Params {
	ps := ParamsOf(model)
	for _, p := range ps {
		p.Make(dev, dtype, seed)
	}
	return ps
}

// Trainable returns the parameters without buffers and frozen ones.
func (ps Params) Trainable() Params {
	return slices.DeleteFunc(slices.Clone(ps), (*tensor.Param).Frozen)
}

// Frozen returns what Trainable leaves out: frozen parameters and buffers.
func (ps Params) Frozen() Params {
	return slices.DeleteFunc(slices.Clone(ps), func(p *tensor.Param) bool { return !p.Frozen() })
}

// ByName returns the parameter with the given name, or nil.
func (ps Params) ByName(name string) *tensor.Param {
	for _, p := range ps {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// Names returns the names.
func (ps Params) Names() []string {
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.Name()
	}
	return names
}

// Count returns the number of elements of all parameters, each as a whole, also where this rank has a part.
func (ps Params) Count() int {
	n := 0
	for _, p := range ps {
		n += p.GlobalLen()
	}
	return n
}
