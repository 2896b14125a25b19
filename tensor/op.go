package tensor

import (
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/tensor/typing"
)

// Op is the number of an operation: its row in every device's kernel table, and its gradient rule.
type Op uint16

// MaxOps is the largest number of operations, built-in and registered ones together.
const MaxOps = 256

// SaveMask says which tensors of a node its gradient rule reads: bit i is input i, SaveOut the output. Tensors that no rule reads are freed
// at the end of a Scope.
type SaveMask uint16

// SaveOut is the bit of the node's output; SaveAll covers the output and all inputs.
const (
	SaveOut SaveMask = 1 << 15
	SaveAll SaveMask = 1<<16 - 1
)

// VJP is a gradient rule (a vector-Jacobian product). It reads n's inputs, output and gradient, and calls t.AddGrad for each input i with
// bit i set in need. It may be called twice, with disjoint masks.
type VJP func(t *Tape, n *Node, need uint8)

// OpSpec describes an operation.
type OpSpec struct {
	Name  string
	Saves SaveMask
	VJP   VJP          // nil only with Const
	Class typing.Class // how it treats partial sums (see Types)
	Rows  RowsRule
	Index uint8 // bit mask of inputs that are positions or counts
	Const bool  // its output has no gradient, or it is a step of another rule
	// Compute makes the output of a node that put it off (see Tape.Later), else nil.
	Compute func(t *Tape, n *Node)
	// Optional means that a device may have no kernel for it (see Exec.Has): then several other operations are used. These round 16-bit
	// floats more often.
	Optional bool
}

var (
	opsMu sync.Mutex
	ops   [MaxOps]OpSpec
	nops  = int(numBuiltin)
)

// Register adds an operation of another package and returns its number. Call it from an init function or a package variable. Then Exec and
// Tape.Record use it like a built-in one, on devices that have kernels for it (see cpu.Register, cuda.Register).
func Register(s OpSpec) Op {
	opsMu.Lock()
	defer opsMu.Unlock()
	if nops == MaxOps {
		fail("Register", nil, "%s: no room, %d operations at most", s.Name, MaxOps)
	}
	if s.Name == "" || (s.VJP == nil) != s.Const {
		fail("Register", nil, "%q needs a name and either a VJP or Const", s.Name)
	}
	op := Op(nops)
	nops++
	define(op, s)
	return op
}

func define(op Op, s OpSpec) {
	if ops[op].Name != "" {
		fail("Register", nil, "operation %d is %s already", op, ops[op].Name)
	}
	if op < numBuiltin {
		s.Rows = builtinRows[op]
	}
	ops[op] = s
}

// Optional reports whether a device may have no kernel for the operation.
func (op Op) Optional() bool { return ops[op].Optional }

// String returns the operation's name.
func (op Op) String() string {
	if int(op) < MaxOps && ops[op].Name != "" {
		return ops[op].Name
	}
	return fmt.Sprintf("Op(%d)", uint16(op))
}
