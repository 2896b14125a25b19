package tcp

import "github.com/ringo-ml/ringo/dist/shm"

// SetSharedFault installs a fault in the memory that the ranks of the host share.
func (e *Engine) SetSharedFault(f shm.Fault) { e.mem.Load().SetFault(f) }

// Shares reports whether the ranks of the host share memory.
func (e *Engine) Shares() bool { return e.mem.Load() != nil }

// SetMachine makes a rank say that it is on some host: only ranks that say the same share memory.
func (c *Config) SetMachine(name string) { c.machine = name }
