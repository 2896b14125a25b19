package ranks

import (
	"context"
	"io"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/local"
	engine "github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// GPU is a device that is a GPU.
type GPU interface {
	tensor.Device
	GPU() *cuda.Device
}

// timeout ends the ranks if a sum hangs, so that it is an error with NCCL's words and there is time for the next sections.
const timeout = 20 * time.Second

// OverNCCL runs fn on ranks of this process that use the first GPUs in turn, each with streams and memory of its own.
func OverNCCL(kind string, ranks, gpus int, fn func(r *dist.Rank) error) error {
	open, err := dist.Devices(kind)
	if err != nil {
		return err
	}
	hub, devices, engines := local.NewHub(ranks), make([]tensor.Device, ranks), make([]backend.Engine, ranks)
	for i := range ranks {
		if devices[i], err = open(i%gpus, 1); err != nil {
			return err
		}
		dev := devices[i].(GPU)
		stream := dev.Queue(0).(interface{ Stream() *cuda.Stream }).Stream()
		engines[i], err = engine.New(engine.Config{Control: hub.Engine(i), Device: dev.GPU(), Compute: stream})
		if err != nil {
			return err
		}
	}
	cfg := dist.Config{Ranks: ranks, Exact: true, Threads: 1, Timeout: timeout, Log: io.Discard}
	cfg.Device = func(rank, _ int) (tensor.Device, error) { return devices[rank], nil }
	return dist.RunEngines(context.Background(), cfg, engines, func(_ context.Context, r *dist.Rank) error { return fn(r) })
}
