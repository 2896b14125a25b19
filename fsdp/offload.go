package fsdp

// With Config.Offload, host memory holds a rank's part of each unit and the state of the optimizer. The device holds the gathered units,
// and gradients until they are reduced.

// upload copies this rank's part to where gathers take it from.
func (s *Sharding) upload(sec *section) {
	from := sec.local
	if !sec.narrow.IsZero() {
		from = sec.narrow
		s.optimizer.Cast(sec.narrow, sec.local)
	}
	if dst := sec.flatShard; dst.Len() > 0 { // in the order of what the device computes
		dev := s.exec.Device()
		dev.Copy(dst.Ptr(), from.Ptr(), dst.Len()*dst.DType().Size(), dev.Queue(0))
	}
}
