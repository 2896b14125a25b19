package mpi

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
)

// View is an engine for one of several jobs that a process takes part in, one after the other. MPI cannot begin again.
type View struct {
	*Engine
	run uint64
}

// View returns the engine of the next job. All ranks call it, also those that do not take part.
func (e *Engine) View(run uint64) View { return View{e, run} }

// Open gives each job its own groups.
func (v View) Open(s backend.Spec) (backend.Backend, error) {
	s.ID = backend.Hash64(s.ID, v.run)
	if s.Parent != 0 {
		s.Parent = backend.Hash64(s.Parent, v.run)
	}
	return v.Engine.Open(s)
}

// Finish says that the rank issues nothing more in groups of this job.
func (v View) Finish() {
	v.lock()
	defer v.mu.Unlock()
	v.left[v.rank] = true
	for _, b := range v.ends {
		b.sendEnd(1)
	}
}

// Close ends the job, and not MPI.
func (v View) Close() error { return nil }

// Rendezvous waits for all ranks between two jobs.
func (e *Engine) Rendezvous() error {
	e.lock()
	defer e.mu.Unlock()
	return e.rendezvous()
}

// Frozen returns why no call of MPI may be made.
func (e *Engine) Frozen() error {
	e.lock()
	defer e.mu.Unlock()
	return e.frozen
}

// Limit makes n the largest count of a call, as in a library without large counts. A message of our algorithms that is copied is in one
// piece.
func (e *Engine) Limit(n int) {
	e.lock()
	defer e.mu.Unlock()
	e.limit = max(n, smallMessage)
}

// SendNowhere sends to a rank that does not exist.
func (e *Engine) SendNowhere() error {
	e.lock()
	defer e.mu.Unlock()
	r := &request{own: make([]byte, 1)}
	e.isend(r, e.data, e.size, 0, unsafe.Pointer(&r.own[0]), 1)
	return r.err
}

// Rank returns this rank's number in the job.
func (e *Engine) Rank() int { return e.rank }

// Size returns the number of ranks.
func (e *Engine) Size() int { return e.size }
