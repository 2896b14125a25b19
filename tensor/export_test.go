package tensor

// For the external tests of this package, which share their cases with tensortest.

// Poison fills the tape's new and freed memory with NaN, as the debug mode does.
func Poison(t *Tape) { t.mem.poison = true }

// CutAll makes a device divide even the smallest work over its threads.
func CutAll(d *CPU) { d.queue.SetGrain(1) }

// Recorded reports whether the tape has a node of op.
func Recorded(t *Tape, op Op) bool {
	for i := range t.nn {
		if t.node(i).op == op {
			return true
		}
	}
	return false
}

// SpecOf returns the OpSpec of an operation.
func SpecOf(op Op) OpSpec { return ops[op] }
