package mpi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// ErrMissing is wrapped by the error of Load if there is no usable MPI.
var ErrMissing = errors.New("no MPI")

// Lib is the MPI library of this process.
type Lib struct {
	Path    string
	Version string // the first line of its own version string, such as "MPICH Version: 5.0.2"
	ABI     string // "standard", "MPICH" or "Open MPI": how handles look
	Handles
	Test, Isend, Irecv uintptr            // the addresses of what is called most
	Large              bool               // the functions with counts take them with 64 bits
	fn                 map[string]uintptr // by name
	dl                 *dl.Lib
}

// plain are the functions that are needed, and counted those that have a form with large counts, too, such as MPI_Isend_c.
var (
	plain = []string{"MPI_Init_thread", "MPI_Initialized", "MPI_Finalize", "MPI_Error_string", "MPI_Comm_rank", "MPI_Comm_size",
		"MPI_Comm_dup", "MPI_Comm_free", "MPI_Comm_group", "MPI_Comm_create_group", "MPI_Comm_set_errhandler", "MPI_Group_incl",
		"MPI_Group_free", "MPI_Allgather", "MPI_Test", "MPI_Cancel", "MPI_Ibarrier"}
	counted = []string{"MPI_Isend", "MPI_Irecv", "MPI_Ibcast", "MPI_Ireduce", "MPI_Iallreduce", "MPI_Igather", "MPI_Iallgather",
		"MPI_Iallgatherv", "MPI_Iscatter", "MPI_Ireduce_scatter_block", "MPI_Ireduce_scatter", "MPI_Ialltoall", "MPI_Ialltoallv"}
)

// Load opens MPI, once per process; later calls return the same. It makes no other call of MPI. The error says what was tried; it wraps
// ErrMissing. RINGO_MPI_LIB names the library.
var Load = sync.OnceValues(func() (*Lib, error) {
	d, err := query().Open()
	l := &Lib{dl: d}
	if err == nil {
		l.Path, err = d.Path, l.read()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return l, nil
})

// query looks for the standard ABI first, then for the library of the mpiexec that started this process: in the loader's search path, and
// beside the mpiexec that the shell finds.
func query() dl.Query {
	names := []string{"libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12", "libmpi.so.40"}
	if os.Getenv("OMPI_COMM_WORLD_SIZE") != "" {
		names = []string{"libmpi.so.40", "libmpi_abi.so.1"}
	}
	var all []string
	at, missing := exec.LookPath("mpiexec")
	for _, name := range names {
		all = append(all, name)
		path := filepath.Join(filepath.Dir(filepath.Dir(at)), "lib", name)
		if _, err := os.Stat(path); err == nil && missing == nil {
			all = append(all, path)
		}
	}
	return dl.Query{What: "MPI", Env: "RINGO_MPI_LIB", Names: all,
		Get: "install an MPI with the standard ABI (`pip install mpich==5.0.2` has one) or set RINGO_MPI_LIB to its libmpi_abi.so.1"}
}

// read finds out which library this is, and then its functions.
func (l *Lib) read() error {
	version, err := l.dl.Sym("MPI_Get_library_version")
	if err != nil {
		return err
	}
	text, n := make([]byte, 8192), new(int32) // MPI_MAX_LIBRARY_VERSION_STRING of all of them
	dl.Call4(version, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(n)), 0, 0)
	first, _, _ := strings.Cut(string(text[:min(int(*n), len(text))]), "\n")
	l.Version = strings.Join(strings.Fields(strings.Trim(first, "\x00")), " ")
	l.dl.Version = l.Version
	if l.Handles, l.ABI, err = handlesOf(l.dl, l.Version); err != nil {
		return err
	}
	suffix := "_c"
	if slices.ContainsFunc(counted, func(name string) bool { return !l.dl.Has(name + "_c") }) {
		suffix = ""
	}
	l.fn, l.Large = map[string]uintptr{}, suffix != ""
	for i, name := range slices.Concat(plain, counted) {
		symbol := name
		if i >= len(plain) {
			symbol += suffix
		}
		if l.fn[name], err = l.dl.Sym(symbol); err != nil {
			return err
		}
	}
	l.Test, l.Isend, l.Irecv = l.fn["MPI_Test"], l.fn["MPI_Isend"], l.fn["MPI_Irecv"]
	return nil
}

// String returns "MPICH Version: 5.0.2 (libmpi_abi.so.1, standard ABI)".
func (l *Lib) String() string { return fmt.Sprintf("%s (%s, %s ABI)", l.Version, l.Path, l.ABI) }

// Err is nil for MPI_SUCCESS; otherwise it has the name of the call and the library's own text.
func (l *Lib) Err(call string, code uintptr) error {
	if int32(code) == 0 {
		return nil
	}
	text, n := make([]byte, 1024), new(int32)
	dl.Call4(l.fn["MPI_Error_string"], code, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(n)), 0)
	return fmt.Errorf("%s: %s: error %d: %s", l.Version, call, int32(code),
		strings.Join(strings.Fields(string(text[:min(int(*n), len(text))])), " "))
}

// Do makes a call. A pointer to Go memory must be converted in the argument list itself.
//
//go:uintptrescapes
func (l *Lib) Do(name string, a ...uintptr) error { return l.Err(name, dl.Call(l.fn[name], a...)) }
