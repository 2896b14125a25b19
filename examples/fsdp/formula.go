package main

import (
	"github.com/ringo-ml/ringo/nn"
)

// sizes is what the formulas need to know of a model.
type sizes struct {
	ranks, stage  int
	value, grad   int // bytes of an element
	total         int // elements of all parameters
	kept, largest int // elements of the kept unit and of a block
	blocks        int
	half          bool // values are in 16 bits, so the optimizer has its own float32 copy
}

func (m *gpt) sizes(o options, stage, ranks int) sizes {
	s := sizes{ranks: ranks, stage: stage, value: 4, grad: 4, half: o.half, blocks: len(m.Blocks)}
	if o.half {
		s.value = 2
	}
	s.total = nn.ParamsOf(m).Count()
	s.largest = nn.Within(m.Blocks[0]).Count()
	s.kept = s.total - s.blocks*s.largest
	return s
}

// memory returns the bytes of a rank. With value bytes v and gradient bytes g of a parameter and AdamW's 8, ZeRO has
// v+g+8/N, v+(g+8)/N and (v+g+8)/N; in 16 bits the optimizer's own copy makes 8 into 12. To these come the units that are
// whole at a time: the kept one, and two blocks and their gradients. A block in 16 bits is converted where it is gathered,
// so stage 3 does not store its part of v.
func (s sizes) memory() int {
	optimizer := 8
	if s.half {
		optimizer = 12
	}
	whole, cut := 0, optimizer
	inFlight := 0
	switch s.stage {
	case 1:
		whole = s.value + s.grad
	case 2:
		whole, cut = s.value, cut+s.grad
		inFlight = 2 * s.largest * s.grad
	case 3:
		cut += s.grad
		inFlight = s.kept*s.value + 2*s.largest*(s.value+s.grad)
		if !s.half {
			cut += s.value
			inFlight -= s.kept * s.value / s.ranks // its part is stored there
		}
	}
	return s.total*whole + s.total*cut/s.ranks + inFlight
}

// wire returns the bytes that all ranks together send in a step: each unit is gathered once (a block of stage 3 once more in
// Backward, but for the last one, which is still there) and reduced once.
func (s sizes) wire() int {
	gathered := s.total
	if s.stage == 3 {
		gathered += (s.blocks - 1) * s.largest
	}
	return (gathered*s.value + s.total*s.grad) * (s.ranks - 1)
}
