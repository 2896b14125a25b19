package nn

import (
	"fmt"
	"reflect"
	"strings"
)

// Configured is a layer of another package that computes by numbers which are not in its parameters. Settings returns a struct that has
// them as exported fields.
type Configured interface{ Settings() any }

// SettingsOf returns a line for each number, bool, string or list of numbers in the exported fields of model's layers that are of this
// package, and of what Configured layers return, in the order of the walk: "block.norm: Eps=1e-05". Ranks that train one model compare
// these lines; so a probability of Dropout, or 8-bit floats, that only some ranks have are an error and not a wrong gradient. Values of
// parameters are no settings.
func SettingsOf(model any) []string {
	var lines []string
	for _, s := range walk(model).layers {
		for _, f := range reflect.VisibleFields(s.v.Type()) {
			v, err := s.v.FieldByIndexErr(f.Index) // an error: of an embedded pointer that is nil
			if err == nil && f.IsExported() && f.Tag.Get("nn") != "-" && isSetting(f.Type) {
				lines = append(lines, strings.TrimPrefix(fmt.Sprintf("%s: %s=%+v", s.name, f.Name, v), ": "))
			}
		}
	}
	return lines
}

var ownPackage = reflect.TypeFor[Dropout]().PkgPath()

// placedLayer is a struct with settings, and where it is in the model.
type placedLayer struct {
	v    reflect.Value
	name string
}

// noteLayer remembers v if it is a struct of this package, or Configured.
func (w *walker) noteLayer(v reflect.Value, name string) {
	if v.Type().PkgPath() == ownPackage {
		w.layers = append(w.layers, placedLayer{v, name})
	} else if s, ok := configuredOf(v); ok {
		w.layers = append(w.layers, placedLayer{reflect.ValueOf(s.Settings()), name})
	}
}

func configuredOf(v reflect.Value) (Configured, bool) {
	if !v.CanAddr() || !v.Addr().CanInterface() {
		return nil, false
	}
	s, ok := v.Addr().Interface().(Configured)
	return s, ok
}

// isSetting reports whether a field of type t says how a layer computes: scalars, and structs and lists of them.
func isSetting(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return isSetting(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isSetting(t.Field(i).Type) {
				return false
			}
		}
		return t.NumField() > 0
	case reflect.Bool, reflect.String:
		return true
	}
	return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64
}
