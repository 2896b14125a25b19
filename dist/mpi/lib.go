package mpi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	h       handles
	fn      funcs
	large   bool // it has the calls with counts of 64 bits
	dl      *dl.Lib
}

// funcs are the addresses of MPI's functions. Where there is a form with large counts, Load prefers it.
type funcs struct {
	Init          uintptr `sym:"MPI_Init_thread"`
	Initialized   uintptr `sym:"MPI_Initialized"`
	Finalize      uintptr `sym:"MPI_Finalize"`
	ErrorString   uintptr `sym:"MPI_Error_string"`
	ProcessorName uintptr `sym:"MPI_Get_processor_name"`
	CommRank      uintptr `sym:"MPI_Comm_rank"`
	CommSize      uintptr `sym:"MPI_Comm_size"`
	CommDup       uintptr `sym:"MPI_Comm_dup"`
	CommFree      uintptr `sym:"MPI_Comm_free"`
	CommGroup     uintptr `sym:"MPI_Comm_group"`
	CommCreate    uintptr `sym:"MPI_Comm_create_group"`
	CommSplit     uintptr `sym:"MPI_Comm_split"`
	ErrHandler    uintptr `sym:"MPI_Comm_set_errhandler"`
	GroupIncl     uintptr `sym:"MPI_Group_incl"`
	GroupFree     uintptr `sym:"MPI_Group_free"`
	Allgather     uintptr `sym:"MPI_Allgather"` // when the job begins only
	Test          uintptr `sym:"MPI_Test"`
	Cancel        uintptr `sym:"MPI_Cancel"`
	Ibarrier      uintptr `sym:"MPI_Ibarrier"`

	Isend          uintptr `large:"MPI_Isend"`
	Irecv          uintptr `large:"MPI_Irecv"`
	Ibcast         uintptr `large:"MPI_Ibcast"`
	Ireduce        uintptr `large:"MPI_Ireduce"`
	Iallreduce     uintptr `large:"MPI_Iallreduce"`
	Igather        uintptr `large:"MPI_Igather"`
	Iallgather     uintptr `large:"MPI_Iallgather"`
	Iallgatherv    uintptr `large:"MPI_Iallgatherv"`
	Iscatter       uintptr `large:"MPI_Iscatter"`
	IreduceScatter uintptr `large:"MPI_Ireduce_scatter_block"`
	IreduceScatV   uintptr `large:"MPI_Ireduce_scatter"`
	Ialltoall      uintptr `large:"MPI_Ialltoall"`
	Ialltoallv     uintptr `large:"MPI_Ialltoallv"`
}

// Load opens MPI, once per process; later calls return the same. It makes no other call of MPI. The error says what was tried; it wraps
// ErrMissing. RINGO_MPI_LIB names the library.
var Load = sync.OnceValues(func() (*Lib, error) {
	d, err := query().Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	l := &Lib{Path: d.Path, dl: d}
	if err := l.read(d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return l, nil
})

// query looks for the standard ABI first, then for the library of the mpiexec that started this process: in the loader's search path, and
// beside the mpiexec that the shell finds.
func query() dl.Query {
	names := []string{"libmpi_abi.so.1", "libmpi.so.12", "libmpi.so.40"}
	if os.Getenv("OMPI_COMM_WORLD_SIZE") != "" {
		names = []string{"libmpi.so.40", "libmpi_abi.so.1"}
	}
	var all []string
	for _, name := range names {
		all = append(all, name)
		if at, err := exec.LookPath("mpiexec"); err == nil {
			if path := filepath.Join(filepath.Dir(filepath.Dir(at)), "lib", name); exists(path) {
				all = append(all, path)
			}
		}
	}
	return dl.Query{What: "MPI", Env: "RINGO_MPI_LIB", Names: all,
		Get: "install an MPI with the standard ABI (`pip install mpich==5.0.2` has one) or set RINGO_MPI_LIB to its libmpi_abi.so.1"}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// read finds out which library this is, and then its functions.
func (l *Lib) read(d *dl.Lib) error {
	version, err := d.Sym("MPI_Get_library_version")
	if err != nil {
		return err
	}
	text, n := make([]byte, 8192), int32(0) // MPI_MAX_LIBRARY_VERSION_STRING of all of them
	dl.Call4(version, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n)), 0, 0)
	first, _, _ := strings.Cut(string(text[:max(0, min(int(n), len(text)))]), "\n")
	l.Version = strings.Join(strings.Fields(strings.Trim(first, "\x00")), " ")
	d.Version = l.Version
	if l.h, l.ABI, err = handlesOf(d, l.Version); err != nil {
		return err
	}
	if err := d.Resolve(&l.fn); err != nil {
		return err
	}
	l.large, err = resolveLarge(d, &l.fn)
	return err
}

// String returns "MPICH Version: 5.0.2 (libmpi_abi.so.1, standard ABI)".
func (l *Lib) String() string { return fmt.Sprintf("%s (%s, %s ABI)", l.Version, l.Path, l.ABI) }

// err is nil for MPI_SUCCESS; otherwise it has the name of the call and the library's own text.
func (l *Lib) err(call string, code uintptr) error {
	if int32(code) == 0 {
		return nil
	}
	text, n := make([]byte, 1024), int32(0)
	why := fmt.Sprint("error ", int32(code))
	if rc := dl.Call4(l.fn.ErrorString, code, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n)), 0); int32(rc) == 0 {
		why = strings.Join(strings.Fields(string(text[:max(0, min(int(n), len(text)))])), " ")
	}
	return fmt.Errorf("%s: %s: %s", l.Version, call, why)
}

// do makes a call that cannot wait.
func (l *Lib) do(name string, fn uintptr, a ...uintptr) error { return l.err(name, dl.Call(fn, a...)) }
