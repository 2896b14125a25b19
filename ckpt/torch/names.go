package torch

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/internal/bounded"
)

// storages maps PyTorch's storage classes to the type of their elements. An UntypedStorage has bytes.
var storages = map[string]safetensors.DType{
	"FloatStorage": "F32", "DoubleStorage": "F64", "HalfStorage": "F16", "BFloat16Storage": "BF16", "LongStorage": "I64", "IntStorage": "I32",
	"ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL", "ComplexFloatStorage": "C64",
	"UntypedStorage": "U8",
}

// types maps PyTorch's dtypes to those of safetensors.
var types = map[string]safetensors.DType{
	"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
	"uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL", "complex64": "C64", "float8_e4m3fn": "F8_E4M3",
	"float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
}

const metadata = "torch.distributed.checkpoint.metadata"

// records are the classes that have only attributes.
var records = map[Name]bool{
	{metadata, "Metadata"}: true, {metadata, "TensorStorageMetadata"}: true, {metadata, "BytesStorageMetadata"}: true,
	{metadata, "TensorProperties"}: true, {metadata, "ChunkStorageMetadata"}: true, {metadata, "MetadataIndex"}: true,
	{metadata, "StorageMeta"}: true, {"torch.distributed.checkpoint.filesystem", "_StorageInfo"}: true,
	{"argparse", "Namespace"}: true,
}

// beside are functions and classes of values that training programs save beside a model: they are passed over.
var beside = map[Name]bool{
	{"types", "SimpleNamespace"}: true, {"collections", "Counter"}: true, {"numpy", "dtype"}: true, {"numpy", "ndarray"}: true,
	{"numpy.core.multiarray", "scalar"}: true, {"numpy._core.multiarray", "scalar"}: true,
	{"numpy.core.multiarray", "_reconstruct"}: true, {"numpy._core.multiarray", "_reconstruct"}: true,
}

// constructors are the functions that a pickle may call. Each makes a value from its arguments.
var constructors = map[Name]func(m *machine, args Tuple) (any, error){
	{"collections", "OrderedDict"}:         newDict,
	{"torch._utils", "_rebuild_tensor"}:    rebuild,
	{"torch._utils", "_rebuild_tensor_v2"}: rebuild,
	{"torch._utils", "_rebuild_tensor_v3"}: rebuildTyped,
	{"torch._utils", "_rebuild_parameter"}: rebuildParameter,
	{"torch", "Size"}:                      newSize,
	{"torch", "device"}:                    nothing,
	{"torch.serialization", "_get_layout"}: nothing,
	{metadata, "_MEM_FORMAT_ENCODING"}:     nothing,
	{"pathlib", "PosixPath"}:               nothing,
	{"pathlib", "WindowsPath"}:             nothing,
	{"pathlib._local", "PosixPath"}:        nothing,
	{"pathlib._local", "WindowsPath"}:      nothing,
	{"_codecs", "encode"}:                  encode,
}

// known reports whether a pickle may use this name.
func known(n Name) bool {
	if records[n] || beside[n] || constructors[n] != nil {
		return true
	}
	switch n.Module {
	case "torch":
		return storages[n.Name] != "" && n.Name != "UntypedStorage" || types[n.Name] != ""
	case "torch.storage":
		return n.Name == "UntypedStorage"
	}
	return false
}

// object runs the operations for classes.
func (m *machine) object(op byte) error {
	switch op {
	case 'c': // GLOBAL
		module, err := m.line()
		if err != nil {
			return err
		}
		name, err := m.line()
		if err != nil {
			return err
		}
		return m.global(module, name)
	case 'Q': // BINPERSID
		v, err := m.pop(1)
		if err != nil {
			return err
		}
		if m.persistent == nil {
			return fmt.Errorf("a reference to a storage, which this pickle has not")
		}
		if err := m.budget.Take(storageBytes); err != nil {
			return err
		}
		x, err := m.persistent(v[0])
		if err != nil {
			return err
		}
		return m.push(x)
	}
	v, err := m.pop(2)
	if err != nil {
		return err
	}
	a, b := v[0], v[1]
	switch op {
	case 0x93: // STACK_GLOBAL
		module, ok1 := a.(string)
		name, ok2 := b.(string)
		if !ok1 || !ok2 {
			return fmt.Errorf("a name is made of %s and %s", kindOf(a), kindOf(b))
		}
		return m.global(module, name)
	case 'b': // BUILD
		if x, ok := a.(*Object); ok {
			x.State = b
		} else if _, ok := a.(*Dict); !ok { // of an OrderedDict: its attribute _metadata says how a module was cut
			return fmt.Errorf("attributes of %s", kindOf(a))
		}
		m.stack = append(m.stack, a)
		return nil
	}
	x, err := m.call(op, a, b)
	if err != nil {
		return err
	}
	return m.push(x)
}

func (m *machine) global(module, name string) error {
	n := Name{module, name}
	if !known(n) {
		return fmt.Errorf("%s is not a name that may be in a checkpoint; nothing of it was executed; where it was made, save the tensors alone: "+
			"torch.save(model.state_dict(), file)", bounded.Quote(n.String()))
	}
	return m.push(n)
}

// call runs REDUCE or NEWOBJ for a known name.
func (m *machine) call(op byte, what, args any) (any, error) {
	n, ok := what.(Name)
	if !ok {
		return nil, fmt.Errorf("%s is called", kindOf(what))
	}
	a, ok := args.(Tuple)
	if !ok {
		return nil, fmt.Errorf("%s is called with %s", n, kindOf(args))
	}
	if op == 0x81 && records[n] && len(a) == 0 || op == 'R' && beside[n] {
		return &Object{Class: n}, nil
	}
	fn := constructors[n]
	if fn == nil || op != 'R' && n.Name != "OrderedDict" {
		return nil, fmt.Errorf("%s is called with %d arguments; that is none of its known uses", n, len(a))
	}
	v, err := fn(m, a)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n, err)
	}
	return v, nil
}

func nothing(*machine, Tuple) (any, error) { return nil, nil }

// newDict takes no arguments: PyTorch adds the items later.
func newDict(_ *machine, a Tuple) (any, error) {
	if len(a) != 0 {
		return nil, fmt.Errorf("%d arguments", len(a))
	}
	return &Dict{}, nil
}

func newSize(_ *machine, a Tuple) (any, error) {
	if len(a) == 1 {
		if _, ok := items(a[0]); ok {
			_, err := ints(a[0])
			return a[0], err
		}
	}
	return nil, fmt.Errorf("arguments that are no sizes")
}

// encode decodes bytes as protocol 2 writes them: as a string of the characters 0 to 255.
func encode(m *machine, a Tuple) (any, error) {
	if len(a) != 2 || a[1] != "latin1" {
		return nil, fmt.Errorf("arguments other than a string and latin1")
	}
	s, ok := a[0].(string)
	if !ok || strings.IndexFunc(s, func(r rune) bool { return r > 255 }) >= 0 {
		return nil, fmt.Errorf("a string that is not latin1")
	}
	if err := m.takeText(len(s)); err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(r))
	}
	return b, nil
}
