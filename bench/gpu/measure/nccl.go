package measure

import (
	"github.com/ringo-ml/ringo/bench/gpu/ranks"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/nccl"
)

// NCCLPair is the section of two ranks. NCCL reads SharedGPU from the environment with which the process began.
const (
	NCCLPair  = "ncclpair"
	SharedGPU = "NCCL_MULTI_RANK_GPU_ENABLE=1"
)

// firstPair is the first NCCL that allows two ranks on a GPU.
const firstPair = 23000

// measureNCCLPair measures sums by NCCL over two ranks that share the device, like measureAllReduce.
func measureNCCLPair(m *meter) error {
	if _, ok := m.dev.(ranks.GPU); !ok {
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
	return ranks.OverNCCL(m.device, 2, 1, func(r *dist.Rank) error {
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
