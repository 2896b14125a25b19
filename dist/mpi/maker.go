package mpi

import (
	"context"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Maker makes the engine of a job that asks for MPI.
var Maker = backend.Maker{Name: "mpi", Serves: func(j *backend.Job) bool { return j.Backend == "mpi" },
	Join: func(_ context.Context, j *backend.Job) (backend.Engine, error) { return Join(j.Timeout, j.Size) }}
