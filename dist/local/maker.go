package local

import (
	"context"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Maker makes the engine of a job of one process. It has no other ranks to connect to.
var Maker = backend.Maker{Name: "local", Serves: func(j *backend.Job) bool { return j.Size == 1 },
	Join: func(context.Context, *backend.Job) (backend.Engine, error) { return NewHub(1).Engine(0), nil }}
