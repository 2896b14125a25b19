package mpi

import (
	"errors"
	"slices"
	"unsafe"
)

// wantComm asks for the communicator of the group, when all its ranks have issued an operation. MPI_Comm_create_group waits for all of them
// and a rank can be in one such call only. So a claim goes from the lowest rank to the next, and so on: each member reserves itself for
// this group. The last one lets all call MPI. As all claims go in the order of ranks, no two groups wait for each other.
func (b *endpoint) wantComm() {
	if !b.asksComm && b.e.rank == slices.Min(b.spec.Ranks) {
		b.e.claim(b)
	}
	b.asksComm = true
}

// claim reserves this rank for b, now or after other groups.
func (e *Engine) claim(b *endpoint) {
	if e.turn = append(e.turn, b); len(e.turn) == 1 {
		e.granted()
	}
}

// granted passes the claim of the first group on to the next member, or lets all begin.
func (e *Engine) granted() {
	b := e.turn[0]
	sorted := slices.Sorted(slices.Values(b.spec.Ranks))
	if i := slices.Index(sorted, e.rank); i+1 < len(sorted) {
		e.post(sorted[i+1], head{kind: msgClaim, id: b.spec.ID}, nil)
		return
	}
	b.toAll(head{kind: msgGo, id: b.spec.ID}, nil)
	b.makeComm()
}

// release ends the reservation of this rank for b.
func (e *Engine) release(b *endpoint) {
	i := slices.Index(e.turn, b)
	if i < 0 || b.making {
		return
	}
	e.turn = slices.Delete(e.turn, i, i+1)
	if i == 0 && len(e.turn) > 0 {
		e.granted()
	}
}

// makeComm makes the communicator, on the pinned goroutine. Until it is made, the engine makes no other call.
func (b *endpoint) makeComm() {
	e := b.e
	e.away, b.making = "MPI_Comm_create_group", true
	go func() {
		e.calls <- func() {
			made, err := e.createGroup(b.spec.Ranks)
			e.lock()
			defer e.mu.Unlock()
			e.away, b.making, b.comm = "", false, made
			for _, r := range e.outbox {
				e.launch(r)
			}
			e.outbox = e.outbox[:0]
			for _, x := range e.ends {
				x.wake() // what is to send or receive can do so now
			}
			if err != nil {
				b.failOp(b.done+1, err)
			}
			e.release(b)
		}
	}()
}

// createGroup makes a communicator of some ranks. The one above it must be that of e.group.
func (e *Engine) createGroup(members []int) (uintptr, error) {
	ranks, made := make([]int32, len(members)), make([]uintptr, 2) // a group, and a communicator
	for i, r := range members {
		ranks[i] = int32(r)
	}
	group, comm := uintptr(unsafe.Pointer(&made[0])), uintptr(unsafe.Pointer(&made[1]))
	if err := e.lib.Do("MPI_Group_incl", e.group, uintptr(len(ranks)), uintptr(unsafe.Pointer(&ranks[0])), group); err != nil {
		return 0, err
	}
	if err := e.lib.Do("MPI_Comm_create_group", e.data, made[0], 0, comm); err != nil {
		return 0, err
	}
	return made[1], errors.Join(e.lib.Do("MPI_Group_free", group), e.lib.ReturnErrors(made[1]))
}
