package layout

import (
	"fmt"
	"math/bits"
)

// Kind says how the values of a tensor on the ranks along one axis of the job belong together, and how the values of its gradient do.
type Kind uint8

// The kinds. All except Own and Cut come from Megatron-LM's conjugate functions f and g.
const (
	Replicated Kind = iota // the same on all; the gradient is a partial sum
	Varying                // each rank has other rows of the batch; so has the gradient
	Partial                // the sum over the ranks is the value; the gradient is the same on all
	Invariant              // the same on all, and so is the gradient
	Own                    // made of several of this rank's rows, not as a sum (a mean, a maximum), or of such: a part of no whole
	Cut                    // each rank has another part of the features or weights; so has the gradient
)

var kindNames = [8]string{"replicated", "varying", "partial", "invariant", "this rank's own", "cut", "?", "?"}

// String returns the name.
func (k Kind) String() string { return kindNames[k&7] }

// Axes is a set of axes of the job: bit i is axis i. Package dist numbers and names them.
type Axes uint8

// First returns the lowest axis; 8 if there is none.
func (a Axes) First() int { return bits.TrailingZeros8(uint8(a)) }

// Axis is an axis of the job, or several that are taken together, and this rank's place on it.
type Axis struct {
	Axes        Axes
	Rank, Ranks int
}

// Types holds a tensor's Kind on each of eight axes. The zero Types is Replicated on all. On an axis that the job does not have, parameters
// are Invariant and inputs are the same on all ranks, which fits everything.
type Types struct{ b0, b1, b2 Axes } // bits i of b0, b1 and b2 are the Kind on axis i

// TypesOf returns the Types whose kinds have these bits: bit i of b0, b1 and b2 are the bits of the Kind on axis i, lowest first.
func TypesOf(b0, b1, b2 Axes) Types { return Types{b0, b1, b2} }

// Bits is the reverse of TypesOf.
func (t Types) Bits() (b0, b1, b2 Axes) { return t.b0, t.b1, t.b2 }

// At returns the Kind on an axis, 0 to 7.
func (t Types) At(axis int) Kind {
	return Kind(t.b2>>axis&1<<2 | t.b1>>axis&1<<1 | t.b0>>axis&1)
}

// all returns bit i of k, 8 times.
func (k Kind) all(i int) Axes { return -Axes(k >> i & 1) }

// With returns t with kind k on axes.
func (t Types) With(axes Axes, k Kind) Types {
	return Types{t.b0&^axes | axes&k.all(0), t.b1&^axes | axes&k.all(1), t.b2&^axes | axes&k.all(2)}
}

// On returns the axes on which t has kind k.
func (t Types) On(k Kind) Axes { return ^((t.b0 ^ k.all(0)) | (t.b1 ^ k.all(1)) | (t.b2 ^ k.all(2))) }

// Dual returns the types of a tensor's gradient, given the tensor's types t: Replicated and Partial are exchanged, others stay.
func (t Types) Dual() Types {
	return t.With(t.On(Replicated), Partial).With(t.On(Partial), Replicated)
}

// Differ returns the axes along which ranks have other values.
func (t Types) Differ() Axes { return (t.b0 | t.b1 | t.b2) &^ t.On(Invariant) }

// KindError says that a tensor has another kind on an axis than it must have.
type KindError struct {
	Axis       int
	Have, Want Kind
}

// Error names the axis and both kinds.
func (e *KindError) Error() string {
	return fmt.Sprintf("axis %d: the input is %v, must be %v", e.Axis, e.Have, e.Want)
}

// Convert returns the types of the output of a Function whose input must have kind from on axes, and whose output has kind to there. If
// from is Partial, Cut is allowed, too: products of parts with parts are to be summed. The error is a *KindError.
func (t Types) Convert(axes Axes, from, to Kind) (Types, error) {
	have := t.On(from)
	if from == Partial {
		have |= t.On(Cut)
	}
	if bad := axes &^ have; bad != 0 {
		return t, &KindError{bad.First(), t.At(bad.First()), from}
	}
	return t.With(axes, to), nil
}

// Bytes returns t for sending to another rank: a pipeline stage sends tensors with their types.
func (t Types) Bytes() [3]byte { return [3]byte{byte(t.b0), byte(t.b1), byte(t.b2)} }

// TypesFromBytes is the reverse of Bytes.
func TypesFromBytes(b [3]byte) (Types, error) {
	t := Types{Axes(b[0]), Axes(b[1]), Axes(b[2])}
	if bad := t.b2 & t.b1; bad != 0 {
		return Types{}, fmt.Errorf("bytes %v are not types: kind %d on axis %d", b, t.At(bad.First()), bad.First())
	}
	return t, nil
}
