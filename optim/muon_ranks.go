package optim

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// stepOnRanks is step where ranks share the matrices. As many matrices as there are ranks are summed from the ranks' parts, with zeros
// elsewhere, so that each sum is exact. Rank k makes matrix k orthogonal, and a second sum tells all. So no bit depends on the layout.
func (m *matrices) stepOnRanks(o *Optimizer) error {
	if m.counted == nil {
		if err := m.findCounted(o); err != nil {
			return err
		}
	}
	first, n := 0, m.ranks.Size()
	for some := range slices.Chunk(m.states, n) {
		whole, at := m.whole, make([]tensor.Tensor, len(some))
		used := 0
		for k, s := range some {
			at[k] = whole.Range(used, used+s.p.GlobalLen())
			used += s.p.GlobalLen()
		}
		whole = whole.Range(0, used)
		o.exec.Fill(whole, 0)
		for k, s := range some {
			if u := m.momentum(o, s); m.counted[first+k] {
				each(s.p, at[k], u, func(all, part tensor.Tensor) { tensor.Copy(all, part) })
			}
		}
		if err := m.ranks.SumTensor(whole); err != nil {
			return err
		}
		for k, s := range some {
			if k == m.ranks.Rank() {
				m.orthogonalize(at[k], s)
			} else {
				o.exec.Fill(at[k], 0)
			}
		}
		if err := m.ranks.SumTensor(whole); err != nil {
			return err
		}
		for k, s := range some {
			u := m.update.Range(0, s.p.Local.Len())
			each(s.p, at[k], u, func(all, part tensor.Tensor) { tensor.Copy(part, all) })
			m.apply(o, s, u)
		}
		first += len(some)
	}
	return nil
}

// each calls f for the runs of elements that this rank has of p: in all, the whole, and in part, its part.
func each(p *tensor.Param, all, part tensor.Tensor, f func(all, part tensor.Tensor)) {
	lo, hi := p.Placement().Range()
	at := 0
	for global, n := range p.Runs(lo, hi) {
		f(all.Range(global, global+n), part.Range(at, at+n))
		at += n
	}
}

// findCounted finds out which matrices this rank gives to the sums. It returns an error on all ranks unless they have the same matrices,
// and each element of them.
func (m *matrices) findCounted(o *Optimizer) error {
	params := make([]*tensor.Param, len(m.states))
	for i, s := range m.states {
		params[i] = s.p
	}
	all, first, err := holdings(m.ranks, params)
	if err != nil {
		return err
	}
	n := len(params)
	for i, h := range all {
		if len(all) != n*m.ranks.Size() || h.name != all[i%n].name {
			return fmt.Errorf("optim: the ranks of MuonConfig.Ranks have different matrices: it is the group of the ranks that have parts or " +
				"copies of the same ones, such as those of one stage of a pipeline")
		}
	}
	counted, elements := countHeld(all)
	for _, h := range all {
		if elements[h.name] != h.want {
			return fmt.Errorf("optim: the ranks of MuonConfig.Ranks hold %v of the %v elements of a matrix: give all ranks that have parts of it",
				elements[h.name], h.want)
		}
	}
	m.counted = counted[first : first+n]
	return o.agree(m.ranks)
}
