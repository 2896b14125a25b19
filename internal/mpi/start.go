package mpi

import (
	"fmt"
	"slices"
	"unsafe"
)

// Initialize calls MPI_Init_thread, for MPI_THREAD_SERIALIZED, and looks at what it gives. Handlers of signals stay as they are.
func (l *Lib) Initialize() (err error) {
	keepSignals(func() { err = l.initialize() })
	return err
}

func (l *Lib) initialize() error {
	before, provided := new(int32), new(int32)
	if err := l.Do("MPI_Initialized", uintptr(unsafe.Pointer(before))); err != nil {
		return err
	}
	if *before != 0 {
		return fmt.Errorf("mpi: %v is in use already in this process", l)
	}
	if err := l.Do("MPI_Init_thread", 0, 0, uintptr(l.levels[2]), uintptr(unsafe.Pointer(provided))); err != nil {
		return err
	}
	return l.checkLevel(*provided)
}

// Describe says which library this process finds, with which ABI and thread level. It initializes MPI, so the process is no rank of a job.
func Describe() (string, error) {
	l, err := Load()
	if err == nil {
		err = l.Initialize()
	}
	if err != nil {
		return "", err
	}
	return l.String() + ", MPI_THREAD_SERIALIZED", nil
}

// checkLevel returns an error if calls may not come from several threads, one at a time.
func (l *Lib) checkLevel(provided int32) error {
	if provided >= l.levels[2] {
		return nil
	}
	name := fmt.Sprint("thread level ", provided)
	if i := slices.Index(l.levels[:], provided); i >= 0 {
		name = [...]string{"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED"}[i]
	}
	return fmt.Errorf("mpi: %v gives %s, but MPI_THREAD_SERIALIZED is needed: use a library that was built with threads", l, name)
}

// Finalize calls MPI_Finalize, and what the library has for the end of the process. No call may follow.
func (l *Lib) Finalize() error {
	err := l.Do("MPI_Finalize")
	if err == nil && l.ABI != "Open MPI" { // MPICH tells mpiexec only at the end of the process that it may end
		l.dl.AtExit()
	}
	return err
}

// ReturnErrors makes calls on a communicator return errors. By default they end the process.
func (l *Lib) ReturnErrors(comm uintptr) error {
	return l.Do("MPI_Comm_set_errhandler", comm, l.Of[ErrorsReturn])
}
