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
		at, used := make([]tensor.Tensor, len(some)), 0
		o.exec.Fill(m.whole, 0)
		for k, s := range some {
			at[k] = m.whole.Range(used, used+s.P.GlobalLen())
			used += s.P.GlobalLen()
			if u := m.direction(o, s, s.moments[0].Ptr()); m.counted[first+k] {
				fromPart(s.P, at[k], u)
			}
		}
		whole := m.whole.Range(0, used)
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
			u := m.update.Range(0, s.P.Local.Len())
			toPart(s.P, at[k], u)
			m.apply(o, s, u)
		}
		first += len(some)
	}
	return nil
}
