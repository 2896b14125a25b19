package torch

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/internal/bounded"
)

// Optimizer is the state of AdamW, Adam or SGD.
type Optimizer struct {
	Steps  int            // largest count of any parameter
	LR     float64        // before the schedule
	Counts map[string]int // step counts, by parameter
	// Tensors have names such as weight.exp_avg: the parameter, a dot, and exp_avg, exp_avg_sq or momentum_buffer.
	Tensors []Named
}

// moments are the names of the tensors that optimizers keep.
var moments = []string{"exp_avg", "exp_avg_sq", "momentum_buffer"}

// optimizer reads a state_dict of torch.optim, keyed by indices or by names, or the result of get_optimizer_state_dict,
// flattened or not.
func (w *walker) optimizer(p *Parts, d *Dict) error {
	if err := w.budget.Take(int64(4 * pairBytes * len(d.Keys))); err != nil {
		return err
	}
	d, err := unflatten(d)
	if err != nil {
		return err
	}
	states, ok := d.Get("state").(*Dict)
	groups, ok2 := sequence(d.Get("param_groups"))
	if !ok || !ok2 {
		return fmt.Errorf("it has no state and param_groups; its keys are %s", keyList(d))
	}
	names, err := w.paramNames(groups, p.Model)
	if err != nil {
		return err
	}
	shapes := map[string][]int{}
	for _, x := range p.Model {
		shapes[x.Name] = x.Shape
	}
	o := &Optimizer{Counts: map[string]int{}}
	for _, name := range names {
		if shapes[name] == nil {
			return fmt.Errorf("its parameter %s is not in the model", bounded.Quote(name))
		}
		o.Counts[name] = 0
	}
	if len(o.Counts) != len(names) {
		return fmt.Errorf("two of its parameters have one name")
	}
	for i, k := range states.Keys {
		name, ok := names[k]
		s, ok2 := states.Values[i].(*Dict)
		if !ok || !ok2 {
			return fmt.Errorf("the state of %s is %s, or it is in none of the param_groups", bounded.Plain(keyText(k)), kindOf(states.Values[i]))
		}
		if err := w.state(o, name, s, shapes[name]); err != nil {
			return err
		}
	}
	if o.LR, err = rate(groups); err != nil {
		return err
	}
	p.Optimizer = o
	return w.groups(p, groups)
}

// lightning reads a list of optimizers if it has one.
func (w *walker) lightning(p *Parts, v any) error {
	list, _ := items(v)
	if len(list) != 1 {
		return w.extra(p, lightningKey, v)
	}
	d, ok := list[0].(*Dict)
	if !ok {
		return w.extra(p, lightningKey, v)
	}
	if err := w.optimizer(p, d); err != nil {
		p.Optimizer = nil
		p.LeftOut = append(p.LeftOut, fmt.Sprintf("%s: %v", lightningKey, err))
	}
	return nil
}

// groups keeps the settings of the parameter groups: learning rates, weight decay and so on.
func (w *walker) groups(p *Parts, groups []any) error {
	list := &List{}
	for _, g := range groups {
		kept := &Dict{}
		if err := w.budget.Take(int64(pairBytes * len(g.(*Dict).Keys))); err != nil {
			return err
		}
		for i, k := range g.(*Dict).Keys {
			if k != "params" && k != "param_names" {
				if err := kept.set(k, g.(*Dict).Values[i]); err != nil {
					return err
				}
			}
		}
		list.Items = append(list.Items, kept)
	}
	return w.extra(p, "param_groups", list)
}

// sequence returns the values of a list, or of a dict with the keys 0, 1 and so on.
func sequence(v any) ([]any, bool) {
	d, ok := v.(*Dict)
	if !ok {
		return items(v)
	}
	out := make([]any, len(d.Keys))
	for i := range out {
		if !d.Has(int64(i)) {
			return nil, false
		}
		out[i] = d.Get(int64(i))
	}
	return out, true
}

// unflatten builds state and param_groups from keys such as state.0.weight.exp_avg and param_groups.0.weight.lr. In
// this form each group has one parameter.
func unflatten(d *Dict) (*Dict, error) {
	if d.Has("state") || d.Has("param_groups") {
		return d, nil
	}
	states, byName, groups := &Dict{}, &Dict{}, &List{}
	for i, key := range d.Keys {
		text := keyText(key)
		dot := strings.LastIndexByte(text, '.')
		first := strings.IndexByte(text, '.')
		if first < 0 || first == dot {
			return nil, fmt.Errorf("the key %s is not of an optimizer", bounded.Quote(text))
		}
		into, name, last := states, text[first+1:dot], text[dot+1:]
		switch text[:first] {
		case "state":
		case "param_groups":
			into = byName
		default:
			return nil, fmt.Errorf("the key %s is not of an optimizer", bounded.Quote(text))
		}
		one, ok := into.Get(name).(*Dict)
		if !ok {
			one = &Dict{}
			if err := into.set(name, one); err != nil {
				return nil, err
			}
		}
		if err := one.set(last, d.Values[i]); err != nil {
			return nil, err
		}
	}
	for i, name := range byName.Keys {
		g := byName.Values[i].(*Dict)
		if err := g.set("params", Tuple{name}); err != nil {
			return nil, err
		}
		groups.Items = append(groups.Items, g)
	}
	out := &Dict{}
	if err := out.set("state", states); err != nil {
		return nil, err
	}
	return out, out.set("param_groups", groups)
}

// paramNames returns the name of each parameter of the groups. Groups list parameters by name or by number; param_names
// gives the names for the numbers. Without param_names, a single group with as many parameters as the model has tensors
// is in the model's order. Anything else is ambiguous, and an error.
func (w *walker) paramNames(groups []any, model []Named) (map[any]string, error) {
	names := map[any]string{}
	numbers := 0
	for _, g := range groups {
		d, ok := g.(*Dict)
		if !ok {
			return nil, fmt.Errorf("a group is %s", kindOf(g))
		}
		params, ok := sequence(d.Get("params"))
		if !ok {
			return nil, fmt.Errorf("the params of a group are %s", kindOf(d.Get("params")))
		}
		given, _ := sequence(d.Get("param_names"))
		if err := w.budget.Take(int64(pairBytes*(len(params)+1) + 16*len(given))); err != nil {
			return nil, err
		}
		for i, key := range params {
			name, ok := key.(string)
			if !ok && len(given) == len(params) {
				name, ok = given[i].(string)
			}
			if _, number := key.(int64); !ok && !number {
				return nil, fmt.Errorf("a parameter is %s", kindOf(key))
			}
			if _, twice := names[key]; twice {
				return nil, fmt.Errorf("its parameter %s is there twice", bounded.Plain(keyText(key)))
			}
			if !ok {
				if key != int64(i) {
					return nil, fmt.Errorf("%s", ambiguous(len(groups), len(params), len(model)))
				}
				numbers++
			}
			names[key] = name
		}
	}
	if numbers == 0 {
		return names, nil
	}
	if numbers != len(model) {
		return nil, fmt.Errorf("%s", ambiguous(len(groups), numbers, len(model)))
	}
	for i, x := range model {
		names[int64(i)] = x.Name
	}
	return names, nil
}

func ambiguous(groups, numbers, model int) string {
	return fmt.Sprintf("it numbers %d parameters in %d groups, and the model has %d tensors: which is which is not said; "+
		"make it with named_parameters(), save it by get_optimizer_state_dict, or take the model alone", numbers, groups, model)
}

// rate returns the learning rate before the schedule.
func rate(groups []any) (float64, error) {
	var rates []float64
	for _, g := range groups {
		v := g.(*Dict).Get("initial_lr")
		if v == nil {
			v = g.(*Dict).Get("lr")
		}
		lr, err := number(v)
		if err != nil {
			return 0, fmt.Errorf("lr: %w", err)
		}
		rates = append(rates, lr)
	}
	slices.Sort(rates)
	rates = slices.Compact(rates)
	if len(rates) != 1 {
		return 0, fmt.Errorf("its groups have %d learning rates, such as %v, and a checkpoint has one; take the model alone",
			len(rates), rates[:min(len(rates), 8)])
	}
	return rates[0], nil
}

// state adds the state of a parameter. SGD does not count steps; if there is a momentum_buffer, the count is 1.
func (w *walker) state(o *Optimizer, name string, s *Dict, shape []int) error {
	for i, k := range s.Keys {
		v := s.Values[i]
		switch {
		case v == nil:
		case k == "step":
			n, err := number(v)
			if err == nil && (n < 0 || n > 1<<53 || n != math.Trunc(n)) {
				err = fmt.Errorf("%v is no number of steps", n)
			}
			if err != nil {
				return fmt.Errorf("the step of %s: %w", bounded.Plain(name), err)
			}
			o.Counts[name] = max(o.Counts[name], int(n))
		case slices.Contains(moments, keyText(k)):
			t, ok := v.(*Tensor)
			if !ok || !slices.Equal(t.Shape, shape) {
				return fmt.Errorf("%s of %s is %s, not a tensor of the shape %v", k, bounded.Plain(name), describe(v), shape)
			}
			o.Tensors = append(o.Tensors, Named{name + "." + keyText(k), t})
			if err := w.tensor(name, t); err != nil {
				return err
			}
			if k == "momentum_buffer" {
				o.Counts[name] = max(o.Counts[name], 1)
			}
		default:
			return fmt.Errorf("%s has %s, which no optimizer here has; take the model alone", bounded.Plain(name), bounded.Plain(keyText(k)))
		}
	}
	o.Steps = max(o.Steps, o.Counts[name])
	return nil
}

func describe(v any) string {
	if t, ok := v.(*Tensor); ok {
		return fmt.Sprintf("%s%v", t.DType, t.Shape)
	}
	return kindOf(v)
}

// number returns a number, or the value of a tensor with one element.
func number(v any) (float64, error) {
	switch v := v.(type) {
	case int64:
		return float64(v), nil
	case float64:
		return v, nil
	case *Tensor:
		if v.n != 1 {
			break
		}
		b := make([]byte, v.Bytes())
		if _, err := v.ReadAt(b, 0); err != nil {
			return 0, err
		}
		switch v.DType {
		case safetensors.F32:
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), nil
		case safetensors.F64:
			return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
		case safetensors.I64:
			return float64(int64(binary.LittleEndian.Uint64(b))), nil
		}
	}
	return 0, fmt.Errorf("%s is no number", describe(v))
}
