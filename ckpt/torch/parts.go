package torch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// maxDepth is the largest depth of a tree. A tree that contains itself exceeds it.
const maxDepth = 64

// Keys under which training programs store a model and its optimizer.
var (
	modelKeys     = []string{"model", "model_state_dict", "state_dict", "module"}
	optimizerKeys = []string{"optimizer", "optimizer_state_dict", "optim", "optim_state_dict"}
)

// lightningKey is where Lightning has a list of optimizers.
const lightningKey = "optimizer_states"

// Named is a tensor with its name.
type Named struct {
	Name string
	*Tensor
}

// Parts are the tensors of a training run, with the names of its state_dicts.
type Parts struct {
	Model     []Named
	Optimizer *Optimizer     // nil: none
	Extra     map[string]any // other values that JSON can represent, and param_groups
	LeftOut   []string       // everything else, such as "ema: 12 tensors"
}

// Parts finds the model and the optimizer in the tree. The model is under the key model, model_state_dict, state_dict
// or module; if the tree has tensors at its top, the tree is the model. The optimizer is under optimizer,
// optimizer_state_dict, optim or optim_state_dict. With modelOnly it is left out. It returns an error if the result
// would be ambiguous. Lightning's optimizer_states are taken if they are those of one optimizer that can be; else they are
// left out, and LeftOut says why.
func (c *Checkpoint) Parts(modelOnly bool) (*Parts, error) {
	p, err := c.parts(modelOnly)
	if err != nil {
		return nil, fmt.Errorf("torch: %w", err)
	}
	return p, nil
}

func (c *Checkpoint) parts(modelOnly bool) (*Parts, error) {
	root, ok := c.Root.(*Dict)
	if !ok {
		return nil, fmt.Errorf("it holds %s, no dict with the tensors of a model", kindOf(c.Root))
	}
	budget := *c.budget // as it was after Open, in every call
	w := &walker{budget: &budget, data: bounded.New(c.bytes)}
	modelKey, err := only(root, "model", modelKeys)
	if err != nil {
		return nil, err
	}
	p := &Parts{Extra: map[string]any{}}
	if modelKey == "" {
		if !slices.ContainsFunc(root.Values, func(v any) bool { _, ok := v.(*Tensor); return ok }) {
			return nil, fmt.Errorf("no model: the keys are %s, and none of them is one of %s", keyList(root), strings.Join(modelKeys, ", "))
		}
		return p, w.model(p, root)
	}
	if err := w.model(p, root.Get(modelKey).(*Dict)); err != nil {
		return nil, err
	}
	optimizerKey, err := only(root, "optimizer", optimizerKeys)
	if err != nil && !modelOnly {
		return nil, err
	}
	for i, k := range root.Keys {
		switch {
		case k == modelKey:
		case slices.Contains(optimizerKeys, keyText(k)) && modelOnly:
			p.LeftOut = append(p.LeftOut, keyText(k))
		case k == optimizerKey:
			if err := w.optimizer(p, root.Values[i].(*Dict)); err != nil {
				return nil, fmt.Errorf("optimizer: %w", err)
			}
		case k == lightningKey && optimizerKey == "" && !modelOnly:
			if err := w.lightning(p, root.Values[i]); err != nil {
				return nil, err
			}
		default:
			if err := w.extra(p, keyText(k), root.Values[i]); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// only returns the key of keys under which root has a dict, or "" if there is none.
func only(root *Dict, what string, keys []string) (string, error) {
	found := ""
	for _, k := range keys {
		if _, ok := root.Get(k).(*Dict); !ok {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("%s and %s may both be the %s", found, k, what)
		}
		found = k
	}
	return found, nil
}

func keyList(d *Dict) string {
	var names []string
	for _, k := range d.Keys[:min(len(d.Keys), 8)] {
		names = append(names, bounded.Plain(keyText(k)))
	}
	return strings.Join(names, ", ")
}

// visitBytes is the memory of what a walk makes of a value, besides its texts; namedBytes is that of a tensor until it is
// in another file.
const (
	visitBytes = 128
	namedBytes = 2048
)

// walker visits the tree. A short pickle can use one value so often that the tree never ends, and one storage under many
// names: so the walk takes memory from a budget, and bytes of tensors from another.
type walker struct{ budget, data *bounded.Budget }

func (w *walker) enter(depth, text int) error {
	if depth > maxDepth {
		return fmt.Errorf("the tree is deeper than %d, or it contains itself", maxDepth)
	}
	return w.budget.Take(int64(visitBytes + 2*depth + 8*text)) // in JSON, a character may have 6 bytes, and a line begins with spaces
}

// tensor takes the bytes of a tensor that gets a name.
func (w *walker) tensor(name string, t *Tensor) error {
	if err := w.budget.Take(int64(namedBytes + 16*len(name))); err != nil {
		return err
	}
	if w.data.Take(t.Bytes()) != nil {
		return fmt.Errorf("up to %s, the tensors have far more bytes than the file: too many share one storage", bounded.Quote(name))
	}
	return nil
}

// model adds the tensors of a state_dict.
func (w *walker) model(p *Parts, d *Dict) error {
	seen := map[string]bool{}
	if err := w.tensors(p, d, "", 0, seen); err != nil {
		return err
	}
	if len(p.Model) == 0 {
		return fmt.Errorf("the model has no tensors")
	}
	return nil
}

func (w *walker) tensors(p *Parts, v any, name string, depth int, seen map[string]bool) error {
	if err := w.enter(depth, len(name)); err != nil {
		return err
	}
	switch v := v.(type) {
	case *Tensor:
		if seen[name] {
			return fmt.Errorf("two tensors have the name %s", bounded.Quote(name))
		}
		seen[name] = true
		p.Model = append(p.Model, Named{name, v})
		return w.tensor(name, v)
	case *Dict:
		for i, k := range v.Keys {
			below := keyText(k)
			if name != "" {
				below = name + "." + below
			}
			if err := w.tensors(p, v.Values[i], below, depth+1, seen); err != nil {
				return err
			}
		}
	default:
		p.LeftOut = append(p.LeftOut, fmt.Sprintf("%s: %s", bounded.Plain(name), kindOf(v)))
	}
	return nil
}

// extra keeps a value that JSON can represent, and lists any other as left out.
func (w *walker) extra(p *Parts, name string, v any) error {
	tensors := 0
	x, ok, err := w.plain(v, 0, &tensors)
	switch {
	case err != nil:
		return err
	case ok:
		p.Extra[name] = x
	case tensors > 0:
		p.LeftOut = append(p.LeftOut, fmt.Sprintf("%s: %d tensors", bounded.Plain(name), tensors))
	default:
		p.LeftOut = append(p.LeftOut, fmt.Sprintf("%s: %s", bounded.Plain(name), kindOf(v)))
	}
	return nil
}

// plain returns a value for encoding/json; ok is false if it contains anything else.
func (w *walker) plain(v any, depth int, tensors *int) (out any, ok bool, err error) {
	text, _ := v.(string)
	if err := w.enter(depth, len(text)); err != nil {
		return nil, false, err
	}
	if list, is := items(v); is {
		all, ok := make([]any, len(list)), true
		for i, x := range list {
			one, fits, err := w.plain(x, depth+1, tensors)
			if err != nil {
				return nil, false, err
			}
			all[i], ok = one, ok && fits
		}
		return all, ok, nil
	}
	switch v := v.(type) {
	case nil, bool, int64, string:
		return v, true, nil
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0), nil
	case *Tensor:
		*tensors++
	case *Dict:
		all, ok := map[string]any{}, true
		for i, k := range v.Keys {
			err := w.enter(depth, len(keyText(k)))
			one, fits, err2 := w.plain(v.Values[i], depth+1, tensors)
			if err := cmp.Or(err, err2); err != nil {
				return nil, false, err
			}
			all[keyText(k)], ok = one, ok && fits
		}
		return all, ok && len(all) == len(v.Keys), nil
	}
	return nil, false, nil
}
