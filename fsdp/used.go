package fsdp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// compareUsed counts on how many ranks each parameter, and each unit, has gradients.
func (s *Sharding) compareUsed() error {
	n := tensor.Data[int32](s.usage)
	clear(n)
	for _, i := range s.order.Reduces() {
		for _, pc := range s.units[i].pieces {
			if pc.stepHasGrad {
				n[i], n[pc.slot] = 1, 1
			}
		}
	}
	if r := s.exec.Recording(); r != nil {
		return s.compareReplays(r)
	}
	return s.sumUsed()
}

// compareReplays makes each replay compare the parameters that ranks use with those of the recording.
func (s *Sharding) compareReplays(r *tensor.Recording) error {
	n := tensor.Data[int32](s.usage)
	mine, sum := slices.Clone(n), []int32(nil)
	return r.Between(func() error {
		copy(n, mine)
		if err := s.sumUsed(); err != nil {
			return err
		}
		if sum == nil {
			sum = slices.Clone(n)
		}
		for i, k := range n {
			if (k > 0) != (sum[i] > 0) {
				return s.abort(errors.New("other ranks use other parameters than when this captured step was recorded"))
			}
		}
		return nil
	})
}

// sumUsed adds up what ranks have used.
func (s *Sharding) sumUsed() error {
	n := tensor.Data[int32](s.usage)
	op := dist.Sum
	if s.cfg.Grads != unquantized { // gradients go by all-to-all, which does not compare tapes: this sum does
		op = s.sum
	}
	if err := s.all.AllReduce(s.all.Gathers, s.usage, op); err != nil {
		return fmt.Errorf("fsdp: comparing which units were used%s: %w", s.unused(), err)
	}
	ranks := int32(s.all.Size())
	for _, u := range s.units {
		if k := n[u.index]; k != 0 && k != ranks {
			return s.abort(fmt.Errorf("%s was used on %d of %d ranks", u.name, k, ranks))
		}
	}
	return nil
}

// unused names the units without a gradient in this step, for the error of ranks that still gather one.
func (s *Sharding) unused() string {
	var names []string
	for _, u := range s.units {
		if trains := func(pc *piece) bool { return !pc.p.Frozen() }; slices.ContainsFunc(u.pieces, trains) &&
			!slices.ContainsFunc(u.pieces, func(pc *piece) bool { return pc.stepHasGrad }) {
			names = append(names, u.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (this rank has not used " + strings.Join(names, ", ") + ")"
}
