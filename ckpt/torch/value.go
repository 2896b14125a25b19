package torch

import (
	"fmt"
	"strconv"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Tuple is a Python tuple, or a torch.Size.
type Tuple []any

// List is a Python list.
type List struct{ Items []any }

// Name is a class, function or value that a pickle names, such as torch.float32.
type Name struct{ Module, Name string }

// String returns the name as Python writes it.
func (n Name) String() string { return n.Module + "." + n.Name }

// Object is a record of a known class.
type Object struct {
	Class Name
	State any // its attributes
}

// Dict is a Python dict, or an OrderedDict: keys and values in their order.
type Dict struct {
	Keys, Values []any
	at           map[any]int
}

// Get returns the value of a key, or nil if there is none.
func (d *Dict) Get(key any) any {
	if d.Has(key) {
		return d.Values[d.at[key]]
	}
	return nil
}

// Has reports whether the key exists.
func (d *Dict) Has(key any) bool {
	if !isKey(key) {
		return false
	}
	_, ok := d.at[key]
	return ok
}

// isKey reports whether a dict may have such a key.
func isKey(key any) bool {
	switch key.(type) {
	case nil, bool, int64, float64, string, Name, *Object:
		return true
	}
	return false
}

// set stores a value. A later value of the same key replaces the earlier one.
func (d *Dict) set(key, value any) error {
	if !isKey(key) {
		return fmt.Errorf("a dict has a key of the type %s", kindOf(key))
	}
	if d.at == nil {
		d.at = map[any]int{}
	}
	if i, ok := d.at[key]; ok {
		d.Values[i] = value
		return nil
	}
	d.at[key] = len(d.Keys)
	d.Keys, d.Values = append(d.Keys, key), append(d.Values, value)
	return nil
}

// kindOf names the type of a value as Python does.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case Tuple:
		return "tuple"
	case *List:
		return "list"
	case *Dict:
		return "dict"
	case *Tensor:
		return "Tensor"
	case *storage:
		return "a storage"
	case Name:
		return v.String()
	case *Object:
		return v.Class.String()
	}
	return fmt.Sprintf("%T", v)
}

// keyText returns a key as part of a tensor's name.
func keyText(key any) string {
	switch k := key.(type) {
	case string:
		return k
	case int64:
		return strconv.FormatInt(k, 10)
	}
	return show(key)
}

// show returns a value for an error: numbers and short texts as they are, and only the type of what can contain others.
// A few bytes of a pickle can make a value whose text never ends.
func show(v any) string {
	switch v := v.(type) {
	case bool, int64, float64:
		return fmt.Sprint(v)
	case string:
		return bounded.Quote(v)
	}
	return kindOf(v)
}

// items returns the values of a list or tuple.
func items(v any) ([]any, bool) {
	switch v := v.(type) {
	case Tuple:
		return v, true
	case *List:
		return v.Items, true
	}
	return nil, false
}

// ints returns the values of a tuple or list of non-negative integers.
func ints(v any) ([]int, error) {
	list, ok := items(v)
	if !ok {
		return nil, fmt.Errorf("%s where sizes should be", kindOf(v))
	}
	if len(list) > maxDims {
		return nil, fmt.Errorf("%d dimensions; at most %d are read", len(list), maxDims)
	}
	out := make([]int, len(list))
	for i, x := range list {
		n, ok := x.(int64)
		if !ok || n < 0 || int64(int(n)) != n {
			return nil, fmt.Errorf("a size is %s", show(x))
		}
		out[i] = int(n)
	}
	return out, nil
}
