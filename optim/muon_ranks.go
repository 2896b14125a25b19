package optim

import (
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// stepOnRanks is step where ranks share the matrices. As many matrices as there are ranks are summed from the ranks' parts, with zeros
// elsewhere, so that each sum is exact. Rank k makes matrix k orthogonal, and a second sum tells all. So no bit depends on the layout.
func (m *matrices) stepOnRanks(o *Optimizer) error {
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
			if u := m.direction(o, s, s.moments[0].Ptr()); m.counted[first+k] {
				fromPart(s.p, at[k], u)
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
			toPart(s.p, at[k], u)
			m.apply(o, s, u)
		}
		first += len(some)
	}
	return nil
}
