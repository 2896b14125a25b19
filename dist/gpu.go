package dist

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/local"
	"github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/dist/peer"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// gpu is a device whose memory NCCL and our own kernels can use.
type gpu interface {
	tensor.Device
	GPU() *cuda.Device
}

// withDeviceMemory makes the memory of the rank's GPU usable for e, an engine that has joined the other ranks, or returns an engine over
// e that can use it. Ranks of one process read and write each other's device memory; processes use NCCL. If processes share a GPU, or
// with RINGO_NCCL=0, device memory is copied through host memory.
func withDeviceMemory(e backend.Engine, dev tensor.Device, at place) (backend.Engine, error) {
	g, ok := dev.(gpu)
	if !ok || e.Name() == "nccl" {
		return e, nil
	}
	stream := g.Queue(0).(interface{ Stream() *cuda.Stream }).Stream()
	if l, ok := e.(*local.Engine); ok {
		d, err := peer.New(g.GPU(), stream)
		if err == nil {
			l.Use(d)
		}
		return e, err
	}
	if os.Getenv("RINGO_NCCL") == "0" {
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
			slog.Warn("processes share a GPU: what they exchange goes through host memory", "ranks", at.beside, "gpus", n)
		}
		return e, nil
	}
	over, err := nccl.New(nccl.Config{Control: e, Device: g.GPU(), Compute: stream})
	if err != nil {
		return nil, fmt.Errorf("%w; or set RINGO_NCCL=0, and device memory goes through the host's, slowly", err)
	}
	return over, nil
}

// warnHostCopies prints a warning if the ranks of this process cannot use each other's device memory.
func warnHostCopies(e backend.Engine) {
	if l, ok := e.(*local.Engine); ok {
		if err := l.Apart(); err != nil {
			slog.Warn("what ranks exchange goes through host memory", "why", err)
		}
	}
}
