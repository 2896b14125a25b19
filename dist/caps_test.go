package dist_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/tensor"
)

// lesser is an engine with fewer Caps than the engine that it wraps.
type lesser struct {
	backend.Engine
	caps backend.Caps
}

type lesserGroup struct {
	backend.Backend
	caps backend.Caps
}

func (e lesser) Open(s backend.Spec) (backend.Backend, error) {
	be, err := e.Engine.Open(s)
	return lesserGroup{be, e.caps}, err
}

func (e lesser) Park(ctx context.Context) error { return e.Engine.(backend.Parker).Park(ctx) }

func (g lesserGroup) Caps() backend.Caps { return g.caps }

// If an engine cannot do an operation, all ranks get an error that names both. Earlier operations still finish.
func TestCaps(t *testing.T) {
	all := backend.Caps{Kinds: backend.AllKinds, Reds: backend.AllReds, DTypes: backend.AllDTypes}
	for want, c := range map[string]struct {
		limit func(c *backend.Caps)
		call  func(g *dist.Group, x tensor.Tensor) dist.Work
	}{
		"alltoall seq 2 of group world: engine local cannot do alltoall": {
			func(c *backend.Caps) { c.Kinds &^= 1 << backend.AllToAll },
			func(g *dist.Group, x tensor.Tensor) dist.Work {
				return g.AllToAll(tensor.New(g.Device(), tensor.Float32, 10), x.Range(0, 10))
			},
		},
		"allreduce seq 2 of group world: engine local cannot do prod": {
			func(c *backend.Caps) { c.Reds &^= 1 << backend.Prod },
			func(g *dist.Group, x tensor.Tensor) dist.Work { return g.AllReduce(x, dist.Prod) },
		},
		"broadcast seq 2 of group world: engine local cannot do int64": {
			func(c *backend.Caps) { c.DTypes &^= 1 << tensor.Int64 },
			func(g *dist.Group, _ tensor.Tensor) dist.Work {
				return g.Broadcast(tensor.New(g.Device(), tensor.Int64, 3), 0)
			},
		},
	} {
		caps, hub := all, local.NewHub(2)
		c.limit(&caps)
		err := dist.RunEngines(context.Background(), dist.Config{Threads: 1, Log: io.Discard},
			[]backend.Engine{lesser{hub.Engine(0), caps}, lesser{hub.Engine(1), caps}}, func(_ context.Context, r *dist.Rank) error {
				x := tensor.New(r.Device, tensor.Float32, 20)
				disttest.OK(r.World.AllReduce(x, dist.Sum).Wait())
				return c.call(r.World, x).Wait()
			})
		require.ErrorContains(t, err, want)
	}
}
