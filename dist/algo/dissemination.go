package algo

import "github.com/ringo-ml/ringo/dist/backend"

func (m *Messages) disseminationBarrier(*backend.Op) error { return m.disseminate() }

// disseminate: in round k each rank sends to rank+2^k and receives from rank−2^k. After ⌈lg n⌉ rounds every rank has heard from all
// others, directly or through others (Hensgen, Finkel, Manber 1988, "Two algorithms for barrier synchronization"). Bytes: 0 (n⌈lg n⌉
// empty messages). ⌈lg n⌉ steps. Operations with a root begin with it. Otherwise ranks that disagree about the root might all succeed, or
// all wait.
func (m *Messages) disseminate() error {
	n, rank := m.t.Size(), m.t.Rank()
	for d := 1; d < n; d *= 2 {
		if err := m.t.SendRecv((rank+d)%n, nil, (rank-d+n)%n, nil, 0); err != nil {
			return err
		}
	}
	return nil
}
