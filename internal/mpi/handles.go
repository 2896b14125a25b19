package mpi

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// Handles are what a library calls MPI's constants. A handle is passed as a word: MPICH's have 32 bits, the others 64.
type Handles struct {
	Of                         [len(constants)]uintptr
	InPlace, Ignore, AnySource uintptr
	levels                     [4]int32 // MPI_THREAD_SINGLE, FUNNELED, SERIALIZED, MULTIPLE
}

// Places in Handles.Of.
const (
	World = iota
	ErrorsReturn
	Byte
	Float
	Double
	Int32
	Int64
	Uint8
	Sum
	Min
	Max
	Prod
	BAnd
	BOr
	BXor
)

// constants are the names of Open MPI's variables.
var constants = [...]string{"comm_world", "errors_return", "byte", "float", "double", "int32_t", "int64_t", "uint8_t",
	"op_sum", "op_min", "op_max", "op_prod", "op_band", "op_bor", "op_bxor"}

// standard is the ABI of MPI 5.0. Its thread levels are no small numbers: a request for level 2 silently gives MPI_THREAD_SINGLE.
var standard = Handles{Of: [...]uintptr{0x101, 0x143, 0x247, 0x210, 0x214, 0x250, 0x258, 0x241, 0x21, 0x22, 0x23, 0x24, 0x28, 0x29, 0x2a},
	InPlace: 1, Ignore: 0, AnySource: ^uintptr(0), levels: [4]int32{0, 1024, 2048, 4096}}

// mpich is the ABI that MPICH, Intel MPI and others have in common (libmpi.so.12).
var mpich = Handles{Of: [...]uintptr{0x44000000, 0x54000001, 0x4c00010d, 0x4c00040a, 0x4c00080b, 0x4c000439, 0x4c00083a, 0x4c00013b,
	0x58000003, 0x58000002, 0x58000001, 0x58000004, 0x58000006, 0x58000008, 0x5800000a},
	InPlace: ^uintptr(0), Ignore: 1, AnySource: ^uintptr(1), levels: [4]int32{0, 1, 2, 3}}

// openMPI are the addresses of Open MPI 4 and 5: its handles are pointers to its own variables.
func openMPI(d *dl.Lib) (h Handles, err error) {
	h = Handles{InPlace: 1, Ignore: 0, AnySource: ^uintptr(0), levels: [4]int32{0, 1, 2, 3}}
	for i, name := range constants {
		if h.Of[i], err = d.Sym("ompi_mpi_" + name); err != nil {
			return h, err
		}
	}
	return h, nil
}

// handlesOf returns the handles of an open library, and the name of its ABI.
func handlesOf(d *dl.Lib, version string) (h Handles, abi string, err error) {
	if d.Has("ompi_mpi_comm_world") {
		h, err = openMPI(d)
		return h, "Open MPI", err
	}
	major, minor := new(int32), new(int32)
	if fn, err := d.Sym("MPI_Abi_get_version"); err == nil {
		dl.Call4(fn, uintptr(unsafe.Pointer(major)), uintptr(unsafe.Pointer(minor)), 0, 0)
	}
	switch {
	case *major == 1:
		return standard, "standard", nil
	case *major > 1:
		return h, "", fmt.Errorf("%s (%s) has version %d.%d of the standard ABI, but 1.x is needed", version, d.Path, *major, *minor)
	case strings.Contains(version, "MPICH") || strings.Contains(version, "Intel") || strings.Contains(version, "MVAPICH"):
		return mpich, "MPICH", nil
	}
	return h, "", fmt.Errorf("%s (%s) has neither the standard ABI nor that of MPICH or Open MPI: set RINGO_MPI_LIB to another library",
		version, d.Path)
}
