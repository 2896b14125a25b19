package main

import (
	"context"
	"io"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/local"
	engine "github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/nccl"
	"github.com/ringo-ml/ringo/tensor"
)

// ncclPair is the section of two ranks. NCCL reads sharedGPU from the environment with which the process began.
const (
	ncclPair  = "ncclpair"
	sharedGPU = "NCCL_MULTI_RANK_GPU_ENABLE=1"
)

// ncclGPU is a device that is a GPU.
type ncclGPU interface {
	tensor.Device
	GPU() *cuda.Device
}

// firstPair is the first NCCL that allows two ranks on a GPU.
const firstPair = 23000

// pairTimeout ends the ranks if a sum hangs, so that it is an error with NCCL's words and there is time for the next sections.
const pairTimeout = 20 * time.Second

// measureNCCLPair measures sums by NCCL over two ranks that share the device, like measureAllReduce.
func measureNCCLPair(m *meter) error {
	if _, ok := m.dev.(ncclGPU); !ok {
		return nil // there is no NCCL on the CPU
	}
	lib, err := nccl.Load()
	if err != nil {
		return err
	}
	if lib.Version < firstPair {
		m.ours("nothing measured: two ranks on one device need NCCL 2.30, and this is", "version", []float64{float64(lib.Version/100) / 100})
		return nil
	}
	cfg, engines, err := pair(m.device)
	if err != nil {
		return err
	}
	return dist.RunEngines(context.Background(), cfg, engines, func(_ context.Context, r *dist.Rank) error {
		small, large := 2048, m.pick(64<<20, 1<<16)
		per, err := m.allReduce(r, r.World, large)
		if err != nil {
			return err
		}
		m.sums(r, large, "", "GB/s", 16e-9*float64(large), per)
		if per, err = m.allReduce(r, r.World, small); err == nil {
			m.sums(r, small, "", "calls/s", 1, per)
		}
		return err
	})
}

// pair makes two ranks of this process with the first GPU, each with streams and memory of its own.
func pair(kind string) (cfg dist.Config, engines []backend.Engine, err error) {
	open, err := dist.Devices(kind)
	if err != nil {
		return cfg, nil, err
	}
	const ranks = 2
	hub, devices := local.NewHub(ranks), make([]tensor.Device, ranks)
	for i := range ranks {
		if devices[i], err = open(0, 1); err != nil {
			return cfg, nil, err
		}
		dev := devices[i].(ncclGPU)
		stream := dev.Queue(0).(interface{ Stream() *cuda.Stream }).Stream()
		e, err := engine.New(engine.Config{Control: hub.Engine(i), Device: dev.GPU(), Compute: stream})
		if err != nil {
			return cfg, nil, err
		}
		engines = append(engines, e)
	}
	cfg = dist.Config{Ranks: ranks, Exact: true, Threads: 1, Timeout: pairTimeout, Log: io.Discard}
	cfg.Device = func(rank, _ int) (tensor.Device, error) { return devices[rank], nil }
	return cfg, engines, nil
}
