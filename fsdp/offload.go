package fsdp

import "github.com/ringo-ml/ringo/tensor"

// With Config.Offload, host memory holds a rank's part of each unit and the state of the optimizer. The device holds the gathered units,
// and gradients until they are reduced.

// upload copies this rank's part to where gathers take it from.
func (s *Sharding) upload(sec *section) {
	from := sec.local
	if !sec.narrow.IsZero() {
		from = sec.narrow
		s.optimizer.Cast(sec.narrow, sec.local)
	}
	s.copyTo(sec.flatShard, from)
}

// copyTo copies from host or device to the device, in the order of what the device computes.
func (s *Sharding) copyTo(dst, src tensor.Tensor) {
	if dst.Len() > 0 {
		dev := s.exec.Device()
		dev.Copy(dst.Ptr(), src.Ptr(), dst.Len()*dst.DType().Size(), dev.Queue(0))
	}
}
