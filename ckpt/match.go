package ckpt

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// match compares the State with the checkpoint, and drops the items that do not fit.
func (l *loader) match() error {
	items, err := l.st.items()
	if err := gatherErrors(l.g, errors.Join(err, l.c.check(), l.matchBase())); err != nil {
		return err
	}
	have := map[string]bool{}
	mine := map[string]bool{}
	for _, x := range items {
		mine[x.key()] = true
	}
	for _, x := range items {
		shape, casts, ok := l.find(&x, mine)
		have[x.key()], have[x.fromKey] = true, true
		want := tensor.Shape{DType: x.data.DType(), Dims: x.Shape}
		switch {
		case !ok:
			l.report.Missing = append(l.report.Missing, x.key())
		case shape.DType != want.DType && !casts || !slices.Equal(shape.Dims, want.Dims):
			is := shape.String()
			if name := l.cat.Foreign[x.fromKey]; name != "" {
				is = name + strings.TrimPrefix(is, shape.DType.String()) + ", which is not converted"
			}
			l.report.Misfits = append(l.report.Misfits, fmt.Sprintf("%s is %s, not %v", x.key(), is, want))
		default:
			x.fromType = shape.DType
			l.items = append(l.items, x)
		}
	}
	if l.c.Strategy == Owned {
		all, err := dist.AllGatherObject(l.g, slices.Sorted(maps.Keys(have)))
		if err != nil {
			return err
		}
		for _, key := range slices.Concat(all...) {
			have[key] = true
		}
	}
	l.report.Unexpected = l.unexpected(have)
	if l.st.Optimizer != nil {
		l.matchOptimizer(items)
	}
	if l.st.Tape != nil && l.cat.Random == nil {
		l.report.Missing = append(l.report.Missing, "the tape's state")
	}
	for _, key := range slices.Sorted(maps.Keys(l.st.Extra)) {
		if _, ok := l.cat.Extra[key]; !ok {
			l.report.Missing = append(l.report.Missing, "extra:"+key)
		}
	}
	for _, list := range []*[]string{&l.report.Missing, &l.report.Misfits} { // a tensor with several items appears once
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if l.c.Partial {
		return nil
	}
	return gatherErrors(l.g, l.strict(len(items)))
}

// find sets x.fromKey, the checkpoint's tensor that fills an item. It returns the type and shape of that tensor, and whether
// its type may differ. mine has the keys of this rank's items.
//
// A parameter that is trained in 16 bits may be saved in two ways: as 16-bit values with a Float32 master, or (by
// package fsdp, which computes with a rounded copy) as Float32 values alone. Each can be loaded into the other: Float32
// values come from the master, and master and 16-bit values come from Float32 values.
func (l *loader) find(x *item, mine map[string]bool) (shape tensor.Shape, casts, ok bool) {
	x.fromKey = x.key()
	shape, ok = l.cat.Tensors[x.fromKey]
	casts = l.c.Cast && shape.DType.IsFloat() && x.data.DType().IsFloat()
	if l.cat.Optimizer == nil || l.st.Optimizer == nil {
		return shape, casts, ok
	}
	if !x.Model {
		of, isMaster := strings.CutSuffix(x.Name, masterKey)
		if value, there := l.cat.Tensors[storage.ItemKey(true, of)]; !ok && isMaster && there && value.DType == tensor.Float32 {
			x.fromKey = storage.ItemKey(true, of)
			return value, casts, true
		}
		return shape, casts, ok
	}
	key := storage.ItemKey(false, x.Name+masterKey)
	master, there := l.cat.Tensors[key]
	switch {
	case there && !mine[key] && x.data.DType() == tensor.Float32 && shape.DType.IsHalf():
		x.fromKey = key
		return master, casts, true
	case !there && mine[key] && shape.DType == tensor.Float32:
		casts = true
	}
	return shape, casts, ok
}

// averageKey ends the optimizer's name of a parameter's average.
const averageKey = ".ema"

// masterKey ends the optimizer's name of a parameter's master.
const masterKey = ".master"

// matchOptimizer compares the optimizer's step counts and scaler with the checkpoint's. It drops the moments of a
// parameter if the checkpoint does not have its step count and all its moments. With only some of them, the bias
// correction would be wrong.
func (l *loader) matchOptimizer(items []item) {
	if l.cat.Optimizer == nil {
		l.report.Missing = append(l.report.Missing, "the optimizer's state")
		return
	}
	l.anew = map[string]bool{}
	state, names := l.st.Optimizer.State(), l.st.inFiles(l.st.Optimizer.State().Counts)
	for name := range state.Counts {
		for _, as := range names(name) {
			if _, ok := l.cat.Optimizer.Counts[as]; !ok {
				if !matches(l.c.AllowMissing, as) {
					l.report.Missing = append(l.report.Missing, "the step count of "+as)
				}
				l.anew[name] = true
			}
		}
	}
	switch want, have := state.Scaler != nil, l.cat.Optimizer.Scaler != nil; {
	case want && !have:
		l.report.Missing = append(l.report.Missing, "the scaler's state")
	case have && !want:
		l.report.Unexpected = append(l.report.Unexpected, "the scaler's state")
	}
	loaded := l.loaded()
	for i := range items {
		if x := &items[i]; x.moment() && !loaded[x.key()] {
			l.anew[x.of.Name()] = true
		}
	}
	l.items = slices.DeleteFunc(l.items, func(x item) bool { return x.moment() && l.anew[x.of.Name()] })
	l.report.Anew = slices.Sorted(maps.Keys(l.anew))
}

// loaded returns the keys of the items that fit the checkpoint.
func (l *loader) loaded() map[string]bool {
	loaded := map[string]bool{}
	for i := range l.items {
		loaded[l.items[i].key()] = true
	}
	return loaded
}

// moment reports whether an item is a moment of the optimizer, which is useless without its step count.
func (x *item) moment() bool {
	return !x.Model && !strings.HasSuffix(x.Name, masterKey) && !strings.HasSuffix(x.Name, averageKey)
}

// check returns an error for an unknown strategy and for malformed patterns.
func (c *LoadConfig) check() error {
	if c.Strategy < Sharded || c.Strategy > Owned {
		return fmt.Errorf("LoadConfig.Strategy is %d: it is Sharded, Broadcast or Owned", c.Strategy)
	}
	for _, pattern := range slices.Concat(c.AllowMissing, c.AllowUnexpected) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("%q: %w", pattern, err)
		}
	}
	return nil
}

// strict returns an error for differences that are not allowed, and if no tensor fits.
func (l *loader) strict(items int) error {
	r := l.report
	r.Missing, r.Unexpected = withoutAllowed(r.Missing, l.c.AllowMissing), withoutAllowed(r.Unexpected, l.c.AllowUnexpected)
	if err := r.err(); err != nil {
		if len(r.Unexpected) > 0 && l.c.Strategy == Sharded && l.g != nil && l.g.Size() > 1 {
			return fmt.Errorf("%w; where ranks have different layers, as stages of a pipeline, set LoadConfig.Strategy to ckpt.Owned", err)
		}
		return err
	}
	if items > 0 && len(l.items) == 0 {
		return fmt.Errorf("the checkpoint has none of the %d tensors, such as %s", items, l.report.Missing[0])
	}
	return nil
}

// withoutAllowed returns the keys whose names match none of the patterns.
func withoutAllowed(keys, patterns []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, name, _ := strings.Cut(key, ":")
		return matches(patterns, name)
	})
}

// matches reports whether a name matches one of the patterns.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name) // checked before
		return ok
	})
}

// unexpected lists what the checkpoint has and no rank loads. Optimizer state counts only if the State has an
// optimizer.
func (l *loader) unexpected(have map[string]bool) (list []string) {
	for key := range l.cat.Tensors {
		if !have[key] && (l.st.Optimizer != nil || strings.HasPrefix(key, storage.ItemKey(true, ""))) {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}

// err is the error of a strict load.
func (r *Report) err() error {
	var parts []string
	add := func(what string, list []string) {
		if len(list) > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s", what, strings.Join(list, ", ")))
		}
	}
	add("missing", r.Missing)
	add("unexpected", r.Unexpected)
	add("of another shape or type", r.Misfits)
	if parts == nil {
		return nil
	}
	return fmt.Errorf("the checkpoint does not fit: %s", strings.Join(parts, "; "))
}
