package tcp

import (
	"context"
	"fmt"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Maker makes the engine of any job that has an address of rank 0.
var Maker = backend.Maker{Name: "tcp", Serves: func(j *backend.Job) bool { return j.Addr != "" }, Join: joinJob}

func joinJob(ctx context.Context, j *backend.Job) (backend.Engine, error) {
	secret, err := ParseSecret(j.Secret)
	if err != nil {
		return nil, fmt.Errorf("dist: RINGO_JOB_SECRET: %w", err)
	}
	listener, err := j.Listen()
	if err != nil {
		return nil, fmt.Errorf("dist: %w", err)
	}
	e, err := Join(ctx, Config{Rank: j.Rank, Size: j.Size, Addr: j.Addr, Secret: secret, Job: j.Name, Bind: j.Bind, Ports: j.Ports,
		Plain: j.Plain, Listener: listener, Timeout: j.Timeout, JoinTimeout: j.JoinTimeout, Gen: uint32(j.Generation), NoShared: j.NoShared})
	if err != nil {
		return nil, fmt.Errorf("%w (address of rank 0: %s, from %s)", err, j.Addr, j.AddrFrom)
	}
	return e, nil
}
