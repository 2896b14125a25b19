package dist

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// gpu is a device whose memory NCCL can use.
type gpu interface {
	tensor.Device
	GPU() *cuda.Device
}

// overNCCL puts NCCL over the engine that has met the other ranks, where the rank's device is a GPU of its own. Ranks that
// share a GPU, and all of them when RINGO_NCCL=0, exchange device memory through the host's.
func overNCCL(e backend.Engine, dev tensor.Device, at place) (backend.Engine, error) {
	g, ok := dev.(gpu)
	if !ok || e.Name() == "nccl" || os.Getenv("RINGO_NCCL") == "0" {
		return e, nil
	}
	driver, err := cuda.Load()
	if err != nil {
		return nil, err
	}
	n, err := driver.Count()
	if err != nil {
		return nil, err
	}
	if at.beside > n {
		if at.local == 0 {
			slog.Warn("ranks share a GPU: what they exchange goes through host memory", "ranks", at.beside, "gpus", n)
		}
		return e, nil
	}
	stream := g.Queue(0).(interface{ Stream() *cuda.Stream }).Stream()
	over, err := nccl.New(nccl.Config{Control: e, Device: g.GPU(), Compute: stream})
	switch {
	case err == nil:
		return over, nil
	case at.size == 1: // it has nobody to exchange anything with
		return e, nil
	}
	return nil, fmt.Errorf("%w; or set RINGO_NCCL=0, and device memory goes through the host's, slowly", err)
}
