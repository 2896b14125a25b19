package mpi

import "time"

// nap sleeps. MPI cannot wake a rank that waits.
func nap(d time.Duration) { time.Sleep(d) } //sleep: MPI has no call that a rank could be woken from
