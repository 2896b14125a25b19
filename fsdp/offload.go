package fsdp

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// With Config.Offload, host memory holds a rank's part of each unit and the state of the optimizer. The device holds the gathered units,
// and gradients until they are reduced.

// offloadValues makes local, and narrow where values are used in another type.
func (s *Sharding) offloadValues(u *Unit, sec *section) {
	c, n := &s.cfg, sec.hi-sec.lo
	sec.local = tensor.NewFor(tensor.Parameters, c.Offload, c.DType, n)
	if u.compute != c.DType {
		sec.narrow = tensor.NewFor(tensor.Communication, c.Offload, u.compute, n)
	}
}

// upload copies this rank's part to where gathers take it from.
func (s *Sharding) upload(sec *section) {
	from := sec.local
	if !sec.narrow.IsZero() {
		from = sec.narrow
		s.host.Cast(sec.narrow, sec.local)
	}
	s.copyTo(sec.flatShard, from)
}

// download copies a reduced gradient to where the optimizer reads it, unless it is there.
func (s *Sharding) download(dst, src tensor.Tensor) {
	if s.host == nil {
		return
	}
	s.copyTo(dst, src)
	if err := s.exec.Device().Queue(0).Sync(); err != nil {
		s.must(fmt.Errorf("copying to host memory: %w", err))
	}
}

// setLocal sets a part of what the optimizer updates to values on the device.
func (s *Sharding) setLocal(local, x tensor.Tensor) {
	if s.host == nil {
		s.exec.Cast(local, x)
		return
	}
	if x.DType() != local.DType() {
		wide := tensor.New(s.exec.Device(), local.DType(), x.Len())
		s.exec.Cast(wide, x)
		x = wide
	}
	s.download(local, x)
}

// copyTo copies between host and device, in the order of what the device computes.
func (s *Sharding) copyTo(dst, src tensor.Tensor) {
	if dst.Len() > 0 {
		dev := s.exec.Device()
		dev.Copy(dst.Ptr(), src.Ptr(), dst.Len()*dst.DType().Size(), dev.Queue(0))
	}
}
