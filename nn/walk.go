package nn

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unsafe"

	"github.com/ringo-ml/ringo/tensor"
)

var (
	paramType   = reflect.TypeFor[tensor.Param]()
	bufferType  = reflect.TypeFor[tensor.Buffer]()
	dropoutType = reflect.TypeFor[Dropout]()
)

// place is where in the model the walk is.
type place struct {
	name       string
	transposed bool
	storers    []placedStorer // of the structs on the way, the outermost first
}

func (at place) child(name string) place {
	if at.name != "" {
		name = at.name + "." + name
	}
	at.name = name
	return at
}

type found struct {
	at    place
	param *tensor.Param
}

type hidden struct {
	at  place
	v   reflect.Value
	pkg string // of the struct that it is in
}

type visit struct {
	p unsafe.Pointer
	t reflect.Type
}

// walker collects parameters in field order.
type walker struct {
	seen     map[visit]bool
	params   []found
	dropouts map[*Dropout]string
	linears  []placedLinear
	layers   []placedLayer // structs of this package
	norms    []*BatchNorm2d
	again    []found  // parameters that were reached before, and where
	hidden   []hidden // unexported fields and maps

	// A search takes maps, and unexported fields in the structs of one package: the one that the hidden field is from. The
	// insides of others, such as groups of ranks, are not looked at: they may be in use.
	search bool
	pkg    string // of the struct that the walk is in

	skip reflect.Type // structs that the walk does not enter, or nil
}

func walk(model any) *walker {
	w := &walker{seen: map[visit]bool{}, dropouts: map[*Dropout]string{}}
	w.value(reflect.ValueOf(model), place{})
	w.checkHidden()
	return w
}

func (w *walker) value(v reflect.Value, at place) {
	switch v.Kind() {
	case reflect.Interface:
		w.value(v.Elem(), at)
	case reflect.Pointer:
		w.pointer(v, at)
	case reflect.Slice, reflect.Array:
		if !mayHold(v.Type().Elem()) {
			return
		}
		for i := range v.Len() {
			w.value(v.Index(i), at.child(strconv.Itoa(i)))
		}
	case reflect.Map:
		w.mapping(v, at)
	case reflect.Struct:
		w.structure(v, at)
	}
}

func (w *walker) mapping(v reflect.Value, at place) {
	if !w.search {
		w.hidden = append(w.hidden, hidden{at, v, w.pkg})
		return
	}
	for it := v.MapRange(); it.Next(); {
		w.value(it.Value(), at.child(fmt.Sprint(it.Key())))
	}
}

// mayHold reports whether values of type t can lead to a parameter.
func mayHold(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return true
	}
	return false
}

func (w *walker) pointer(v reflect.Value, at place) {
	key := visit{v.UnsafePointer(), v.Type()}
	if v.IsNil() {
		return
	}
	if w.seen[key] {
		if v.Type().Elem() == paramType {
			w.again = append(w.again, found{at, (*tensor.Param)(key.p)})
		}
		return
	}
	w.seen[key] = true
	switch v.Type().Elem() {
	case paramType:
		w.params = append(w.params, found{at, (*tensor.Param)(key.p)})
	case bufferType:
		w.params = append(w.params, found{at, &(*tensor.Buffer)(key.p).Param})
	case dropoutType:
		w.dropouts[(*Dropout)(key.p)] = at.name
		w.noteLayer(v.Elem(), at.name)
	default:
		w.value(v.Elem(), at)
	}
}

func (w *walker) structure(v reflect.Value, at place) {
	switch v.Type() {
	case w.skip:
		return
	case paramType, bufferType, dropoutType:
		fail("ParamsOf", "%q is a %v by value; hold a pointer", at.name, v.Type())
	}
	w.noteLayer(v, at.name)
	if w.noteLinear(v, at.name); isMerged(v) {
		return
	}
	if n, ok := addressOf[BatchNorm2d](v); ok {
		w.norms = append(w.norms, n)
	}
	at = at.askStorer(v)
	pkg, outer := v.Type().PkgPath(), w.pkg
	if !w.search {
		w.pkg = pkg
		defer func() { w.pkg = outer }()
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !mayHold(f.Type) {
			continue
		}
		in, ok := fieldPlace(at, f)
		switch {
		case !ok:
		case f.IsExported(), f.Anonymous && embedsStruct(f.Type), w.search && pkg == w.pkg:
			w.value(v.Field(i), in)
		case !w.search:
			w.hidden = append(w.hidden, hidden{in, v.Field(i), pkg})
		}
	}
}

func embedsStruct(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// fieldPlace returns the place of field f of the struct at at; ok is false where the tag excludes it.
func fieldPlace(at place, f reflect.StructField) (in place, ok bool) {
	tag, tagged := f.Tag.Lookup("nn")
	if tag == "-" {
		return at, false
	}
	name, option, _ := strings.Cut(tag, ",")
	switch {
	case name != "":
	case f.Anonymous:
		in = at
	case option == "inline":
		in, in.transposed = at, false
	default:
		name = lowerSnake(f.Name)
	}
	if name != "" {
		in = at.child(name)
	}
	if option == "transposed" {
		in.transposed = true
	} else if tagged && option != "" && tag != ",inline" {
		fail("ParamsOf", "field %s has the tag %q; the options are transposed and, without a name, inline", f.Name, tag)
	}
	return in, true
}

// lowerSnake turns "AttnNorm" into "attn_norm" and "QKVProj" into "qkv_proj".
func lowerSnake(s string) string {
	var b strings.Builder
	r := []rune(s)
	for i, c := range r {
		if i > 0 && unicode.IsUpper(c) {
			before, after := r[i-1], i+1 < len(r) && unicode.IsLower(r[i+1])
			if unicode.IsLower(before) || unicode.IsDigit(before) || unicode.IsUpper(before) && after {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// checkHidden panics when a parameter can be reached only in a way that the walk does not take.
func (w *walker) checkHidden() {
	known := map[*tensor.Param]bool{}
	for _, f := range w.params {
		known[f.param] = true
	}
	in := &walker{seen: map[visit]bool{}, dropouts: map[*Dropout]string{}, search: true}
	for _, h := range w.hidden {
		in.pkg = h.pkg
		in.value(h.v, h.at)
	}
	for _, f := range in.params {
		if !known[f.param] {
			fail("ParamsOf", "%q, of shape %v, is in an unexported field or a map and would not train; "+
				"export the field (a slice for the map), or tag it nn:\"-\" if it is not a part of the model", f.at.name, f.param.Dims())
		}
	}
	for d, name := range in.dropouts {
		if _, ok := w.dropouts[d]; !ok {
			fail("ParamsOf", "dropout %q is in an unexported field or a map and would get no name", name)
		}
	}
}

func fail(op, format string, a ...any) {
	panic(&tensor.Failure{Op: "nn." + op, Err: fmt.Errorf(format, a...)})
}
