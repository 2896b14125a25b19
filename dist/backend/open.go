package backend

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Job is this process's place in a job, as a launcher's environment says it, and what engines need to meet the other ranks.
type Job struct {
	Rank, Size  int
	Source      string // who launched, such as "ringo" or "openmpi"
	Name        string // of the job
	Addr        string // host:port of rank 0
	AddrFrom    string // where Addr comes from, for errors
	Secret      string // unchecked
	Generation  int    // counts the starts of the job, from 1
	Bind        string // address to listen on
	Ports       [2]int // the first and the last port to listen on; zeros for any
	Plain       bool   // data is not encrypted
	NoShared    bool   // ranks of a host use sockets instead of shared memory
	Timeout     time.Duration
	JoinTimeout time.Duration
	Listen      func() (net.Listener, error) // the listener that rank 0 has inherited; nil: none
}

// Maker makes engines of a kind for jobs whose ranks are processes.
type Maker struct {
	Name   string
	Serves func(j *Job) bool // it is for such jobs
	Join   func(ctx context.Context, j *Job) (Engine, error)
}

// Open meets the other ranks of a job with the first of makers that serves it.
func Open(ctx context.Context, makers []Maker, j *Job) (Engine, error) {
	var names []string
	for _, m := range makers {
		if m.Serves(j) {
			return m.Join(ctx, j)
		}
		names = append(names, m.Name)
	}
	return nil, fmt.Errorf("no engine for %d ranks that %s started; there are %v", j.Size, j.Source, names)
}
