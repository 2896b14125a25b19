package mpi

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/tensor"
)

// handles are what a library calls MPI's constants. A handle is passed as a word: MPICH's have 32 bits, the others 64.
type handles struct {
	World, Null, RequestNull, ErrorsReturn, Byte uintptr
	types                                        [tensor.NumDTypes]uintptr // 0: MPI has no such type
	reds                                         [backend.NumReds]uintptr  // 0: MPI has no such reduction
	inPlace, ignore, anySource                   uintptr
	levels                                       [4]int32 // MPI_THREAD_SINGLE, FUNNELED, SERIALIZED, MULTIPLE
}

// standard is the ABI of MPI 5.0. Its thread levels are no small numbers: a request for level 2 silently gives MPI_THREAD_SINGLE.
var standard = handles{World: 0x101, Null: 0x100, RequestNull: 0x180, ErrorsReturn: 0x143, Byte: 0x247,
	types: [tensor.NumDTypes]uintptr{tensor.Float32: 0x210, tensor.Float64: 0x214, tensor.Int32: 0x250, tensor.Int64: 0x258,
		tensor.Uint8: 0x241},
	reds: [backend.NumReds]uintptr{backend.Sum: 0x21, backend.Min: 0x22, backend.Max: 0x23, backend.Prod: 0x24, backend.BAnd: 0x28,
		backend.BOr: 0x29, backend.BXor: 0x2a},
	inPlace: 1, ignore: 0, anySource: ^uintptr(0), levels: [4]int32{0, 1024, 2048, 4096}}

// mpich is the ABI that MPICH, Intel MPI and others have in common (libmpi.so.12).
var mpich = handles{World: 0x44000000, Null: 0x04000000, RequestNull: 0x2c000000, ErrorsReturn: 0x54000001, Byte: 0x4c00010d,
	types: [tensor.NumDTypes]uintptr{tensor.Float32: 0x4c00040a, tensor.Float64: 0x4c00080b, tensor.Int32: 0x4c000439,
		tensor.Int64: 0x4c00083a, tensor.Uint8: 0x4c00013b},
	reds: [backend.NumReds]uintptr{backend.Sum: 0x58000003, backend.Min: 0x58000002, backend.Max: 0x58000001, backend.Prod: 0x58000004,
		backend.BAnd: 0x58000006, backend.BOr: 0x58000008, backend.BXor: 0x5800000a},
	inPlace: ^uintptr(0), ignore: 1, anySource: ^uintptr(1), levels: [4]int32{0, 1, 2, 3}}

// openMPI are the addresses of Open MPI 4 and 5: its handles are pointers to its own variables.
func openMPI(d *dl.Lib) (handles, error) {
	var at struct {
		World        uintptr `sym:"ompi_mpi_comm_world"`
		Null         uintptr `sym:"ompi_mpi_comm_null"`
		RequestNull  uintptr `sym:"ompi_request_null"`
		ErrorsReturn uintptr `sym:"ompi_mpi_errors_return"`
		Byte         uintptr `sym:"ompi_mpi_byte"`
		Float32      uintptr `sym:"ompi_mpi_float"`
		Float64      uintptr `sym:"ompi_mpi_double"`
		Int32        uintptr `sym:"ompi_mpi_int32_t"`
		Int64        uintptr `sym:"ompi_mpi_int64_t"`
		Uint8        uintptr `sym:"ompi_mpi_uint8_t"`
		Sum          uintptr `sym:"ompi_mpi_op_sum"`
		Min          uintptr `sym:"ompi_mpi_op_min"`
		Max          uintptr `sym:"ompi_mpi_op_max"`
		Prod         uintptr `sym:"ompi_mpi_op_prod"`
		BAnd         uintptr `sym:"ompi_mpi_op_band"`
		BOr          uintptr `sym:"ompi_mpi_op_bor"`
		BXor         uintptr `sym:"ompi_mpi_op_bxor"`
	}
	if err := d.Resolve(&at); err != nil {
		return handles{}, err
	}
	return handles{World: at.World, Null: at.Null, RequestNull: at.RequestNull, ErrorsReturn: at.ErrorsReturn, Byte: at.Byte,
		types: [tensor.NumDTypes]uintptr{tensor.Float32: at.Float32, tensor.Float64: at.Float64, tensor.Int32: at.Int32,
			tensor.Int64: at.Int64, tensor.Uint8: at.Uint8},
		reds: [backend.NumReds]uintptr{backend.Sum: at.Sum, backend.Min: at.Min, backend.Max: at.Max, backend.Prod: at.Prod,
			backend.BAnd: at.BAnd, backend.BOr: at.BOr, backend.BXor: at.BXor},
		inPlace: 1, ignore: 0, anySource: ^uintptr(0), levels: [4]int32{0, 1, 2, 3}}, nil
}

// handlesOf returns the handles of an open library, and the name of its ABI.
func handlesOf(d *dl.Lib, version string) (handles, string, error) {
	if d.Has("ompi_mpi_comm_world") {
		h, err := openMPI(d)
		return h, "Open MPI", err
	}
	major, minor := int32(-1), int32(-1)
	if fn, err := d.Sym("MPI_Abi_get_version"); err == nil {
		dl.Call4(fn, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor)), 0, 0)
	}
	switch {
	case major == 1:
		return standard, "standard", nil
	case major > 1:
		return handles{}, "", fmt.Errorf("%s (%s) has version %d.%d of the standard ABI, but 1.x is needed", version, d.Path, major, minor)
	case strings.Contains(version, "MPICH") || strings.Contains(version, "Intel") || strings.Contains(version, "MVAPICH"):
		return mpich, "MPICH", nil
	}
	return handles{}, "", fmt.Errorf("%s (%s) has neither the standard ABI nor that of MPICH or Open MPI: "+
		"set RINGO_MPI_LIB to another library", version, d.Path)
}

// resolveLarge fills the fields with a tag `large`: with the functions for large counts if the library has all of them.
func resolveLarge(d *dl.Lib, funcs any) (large bool, err error) {
	v, suffix := reflect.ValueOf(funcs).Elem(), "_c"
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("large"); name != "" && !d.Has(name+"_c") {
			suffix = ""
		}
	}
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("large"); name != "" {
			at, err := d.Sym(name + suffix)
			if err != nil {
				return false, err
			}
			v.Field(i).SetUint(uint64(at))
		}
	}
	return suffix != "", nil
}
