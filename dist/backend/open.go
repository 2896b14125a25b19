package backend

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Job is this process's place in a job, as a launcher's environment says, and what engines need to connect to the other ranks.
type Job struct {
	Rank, Size  int
	Source      string // the launcher, such as "ringo" or "openmpi"
	Name        string // of the job
	Backend     string // the engine that the program asks for; "": any
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
	Listen      func() (net.Listener, error) // makes the listener that rank 0 inherited; nil: none
}

// Maker makes engines of one kind, for jobs whose ranks are processes.
type Maker struct {
	Name   string
	Serves func(j *Job) bool // whether it can serve this job
	Join   func(ctx context.Context, j *Job) (Engine, error)
}

// Open connects to the other ranks of a job with the first maker that can serve it.
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
