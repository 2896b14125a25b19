package algo

import "github.com/ringo-ml/ringo/dist/backend"

func (m *Messages) disseminationBarrier(*backend.Op) error { return m.disseminate() }

// disseminate: in round k each rank tells rank+2^k and hears from rank−2^k; after ⌈lg n⌉ rounds everyone has heard of
// everyone (Hensgen, Finkel, Manber 1988, "Two algorithms for barrier synchronization"). Bytes: 0 (n⌈lg n⌉ empty
// messages). ⌈lg n⌉ steps. Operations with a root begin with it: ranks that disagree about the root could all be
// content, or all wait.
func (m *Messages) disseminate() error {
	n, rank := m.t.Size(), m.t.Rank()
	for d := 1; d < n; d *= 2 {
		if err := m.t.SendRecv((rank+d)%n, nil, (rank-d+n)%n, nil, 0); err != nil {
			return err
		}
	}
	return nil
}
