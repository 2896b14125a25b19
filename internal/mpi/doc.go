// Package mpi opens the MPI library of a process at run time, without cgo: libmpi_abi.so.1, with the standard ABI of MPI 5.0, or the
// libraries of MPICH and of Open MPI 4 and 5, which have tables of handles of their own. RINGO_MPI_LIB names another library. Package
// dist/mpi is the engine that uses it, and ringo doctor says which it is.
//
//	lib.go      finding the library, and calls
//	handles.go  what it calls MPI's constants
//	start.go    begin and end; signals_linux.go: its handlers of signals are taken away again
package mpi
