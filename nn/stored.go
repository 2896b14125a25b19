package nn

import (
	"reflect"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// Storer is a struct in a model, usually the model itself, that says under which names files keep the parameters below it:
// names that no tag can give, several tensors for one parameter, or a part of one tensor for each of several parameters.
// ParamsOf asks it for each parameter, by its name below the struct and the shape of the whole. It returns the segments of
// dimension 0, one after another, with names below the struct too, and whether files hold a matrix as [in, out]; where as is
// nil, names and tags count. Of several Storers above a parameter, the outermost that says something counts.
type Storer interface {
	Stored(name string, dims []int) (as []tensor.Stored, transposed bool)
}

// placedStorer is a Storer and the name of its place in the model.
type placedStorer struct {
	storer Storer
	name   string
}

// askStorer returns the place inside the struct v at at: with v's Storer, if it is one.
func (at place) askStorer(v reflect.Value) place {
	if v.CanAddr() {
		v = v.Addr()
	}
	if !v.CanInterface() {
		return at // an unexported field: only the search for forgotten parameters is in there
	}
	if s, ok := v.Interface().(Storer); ok {
		at.storers = append(at.storers[:len(at.storers):len(at.storers)], placedStorer{s, at.name})
	}
	return at
}

// setStored tells the parameter how files keep it.
func (f found) setStored() {
	as, transposed := f.stored()
	f.param.SetStored(as)
	f.param.SetTransposed(transposed && len(f.param.Global()) == 2)
}

// stored asks the Storers above a parameter; without one that answers, as is nil.
func (f found) stored() (as []tensor.Stored, transposed bool) {
	dims := f.param.Global()
	for _, s := range f.at.storers {
		name, prefix := f.at.name, ""
		if s.name != "" {
			prefix = s.name + "."
			name = strings.TrimPrefix(name, prefix)
		}
		as, transposed := s.storer.Stored(name, append([]int(nil), dims...))
		if as == nil {
			continue
		}
		below := make([]tensor.Stored, len(as))
		for i, x := range as {
			below[i] = x
			if x.Name != "" {
				below[i].Name = prefix + x.Name
			}
		}
		return below, transposed
	}
	return nil, f.at.transposed
}

// checkStored panics when two parameters would be in one place of a file.
func checkStored(ps Params) {
	type user struct {
		param *tensor.Param
		as    tensor.Stored
	}
	users := map[string][]user{}
	for _, p := range ps {
		as := p.Stored()
		if as == nil {
			rows := max(1, slices.Concat(p.Global(), []int{1})[0])
			as = []tensor.Stored{{Name: p.Name(), Rows: rows, Total: rows}} // all of it: in conflict with every segment
		}
		for _, s := range as {
			for _, u := range users[s.Name] {
				if err := s.Conflict(u.as); err != nil {
					fail("ParamsOf", "%v and %v cannot both be stored in %q: %w", u.param, p, s.Name, err)
				}
				if u.param.Transposed() != p.Transposed() || !slices.Equal(u.param.Global()[1:], p.Global()[1:]) {
					fail("ParamsOf", "%v and %v cannot both be stored in %q: rows of another shape or transposed", u.param, p, s.Name)
				}
			}
			users[s.Name] = append(users[s.Name], user{p, s})
		}
	}
}
