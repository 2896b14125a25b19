package backend

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/compare"
)

// Desc is what must agree between the ranks of an operation. Its Fingerprint travels in every message. If fingerprints differ, the Desc
// itself is sent, so that the error can say what differs.
type Desc struct {
	Kind   Kind
	Red    Red
	DType  tensor.DType
	Count  int
	Root   int
	Tag    int
	Algo   string
	Group  string
	Seq    uint64
	Counts []int  // AllGatherV, ReduceScatterV: the counts of all ranks, in rows
	Row    int    // elements in a row, where there are Counts
	Shape  string // of the tensor, for the error text; not compared
	Choice string // the algorithm that runs if Algo is ""; also only for the error text
	Device bool   // the data is in the memory of devices
	Agreed compare.Agreement
}

// DescOf returns the descriptor of op in the group named group.
func DescOf(op *Op, group string) Desc {
	if op.Of != nil {
		d := DescOf(op.Of, group)
		d.Device = true
		return d
	}
	d := Desc{Kind: op.Kind, Red: op.Red, DType: op.DType, Count: op.Count, Root: op.Root, Tag: op.Tag, Algo: op.Algo,
		Group: group, Seq: op.Seq, Shape: op.Shape.String(), Device: op.OnDevice(), Agreed: op.Agreed}
	for _, c := range sharedCounts(op) {
		d.Row = max(op.Row, 1)
		d.Counts = append(d.Counts, c/d.Row)
	}
	return d
}

func sharedCounts(op *Op) []int {
	switch op.Kind {
	case AllGatherV:
		return op.DstCounts
	case ReduceScatterV:
		return op.SrcCounts
	}
	return nil
}

// Reduces reports whether the operation combines elements, so that Red must agree.
func (k Kind) Reduces() bool {
	return k == Reduce || k == AllReduce || k == ReduceScatter || k == ReduceScatterV
}

func (k Kind) rooted() bool { return k == Broadcast || k == Reduce || k == Gather || k == Scatter }

func (k Kind) typed() bool { return k != Barrier && k != MonitoredBarrier }

// counted reports whether Count must agree; the V forms compare their counts instead.
func (k Kind) counted() bool {
	return k.typed() && k != AllGatherV && k != ReduceScatterV && k != AllToAllV
}

// paired returns the same kind for both sides of a message.
func (k Kind) paired() Kind {
	if k == Recv {
		return Send
	}
	return k
}

// Hash64 continues the hash h with word w. Each step is that of SplitMix64 (Steele, Lea, Flood 2014).
func Hash64(h, w uint64) uint64 {
	h = (h ^ w) + 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// HashString hashes a name, such as that of a group or an algorithm.
func HashString(s string) uint64 {
	h := uint64(len(s)) + 0x51ed270b
	for i := range len(s) {
		h = Hash64(h, uint64(s[i]))
	}
	return h
}

// Fingerprint returns 64 bits that are equal on two ranks if op agrees. Where they matter, it covers kind, reduction, type, count, root,
// tag, algorithm, group (HashString of its name), sequence number, kind of memory and Agreement. It does not allocate.
func Fingerprint(op *Op, group uint64) uint64 {
	if op.Of != nil {
		return Hash64(Fingerprint(op.Of, group), 0x6f66)
	}
	k := op.Kind
	h := Hash64(group, uint64(k.paired())<<32|op.Seq<<40|op.Seq>>24)
	if k.typed() {
		h = Hash64(h, uint64(op.DType)+1)
	}
	if k.counted() {
		h = Hash64(h, uint64(op.Count))
	}
	if k.Reduces() {
		h = Hash64(h, uint64(op.Red)+101)
		if op.Agreed != (compare.Agreement{}) {
			h = Hash64(h, op.Agreed.Print())
		}
	}
	if k.rooted() {
		h = Hash64(h, uint64(op.Root))
	}
	if k.paired() == Send {
		h = Hash64(h, uint64(op.Tag))
	}
	for _, c := range sharedCounts(op) {
		h = Hash64(h, uint64(c))
	}
	if op.Algo != "" {
		h = Hash64(h, HashString(op.Algo))
	}
	if op.OnDevice() {
		h = Hash64(h, 0x646576)
	}
	return h
}

// Mismatch compares what ranks ra and rb issued as the same operation. It returns the Error, or nil if they agree. Group, Op and Seq of
// the Error are those of a; its Rank is rb.
func Mismatch(a, b *Desc, ra, rb int) *Error {
	want, got, advice := difference(a, b)
	if want == "" {
		return nil
	}
	e := &Error{Rank: rb, Group: a.Group, Op: a.Kind.String(), Seq: a.Seq,
		Want: fmt.Sprintf("%s (rank %d)", want, ra), Got: fmt.Sprintf("%s (rank %d)", got, rb)}
	if e.Cause = advice; advice == nil && a.Kind.typed() && b.Kind.typed() {
		e.Cause = fmt.Errorf("shapes %s and %s", a.Shape, b.Shape)
	}
	if a.Group == b.Group && a.Seq == b.Seq && a.Kind.paired() != b.Kind.paired() && b.Kind.typed() && a.Kind.typed() {
		e.Cause = fmt.Errorf("%w: these ranks are at different places of the program; what decides where they go, such as whether a "+
			"batch is skipped, must be the same on all (SumFloats of what each sees)", e.Cause)
	}
	return e
}

// Disagreement is the failure of an operation that ranks ra and rb issued differently, in the order of the ranks. They may be equal as far
// as can be told: then it does not say what differs.
func Disagreement(a, b *Desc, ra, rb int) *Error {
	if rb < ra {
		a, b, ra, rb = b, a, rb, ra
	}
	if err := Mismatch(a, b, ra, rb); err != nil {
		return err
	}
	known := a
	if a.Group == "" {
		known = b
	}
	return &Error{Rank: rb, Group: known.Group, Op: known.Kind.String(), Seq: known.Seq,
		Cause: fmt.Errorf("ranks %d and %d gave different operations", ra, rb)}
}

// difference returns the first difference, the most useful one first.
func difference(a, b *Desc) (want, got string, advice error) {
	if a.Group == b.Group && a.Seq == b.Seq && a.Kind == b.Kind && a.Kind.Reduces() && a.DType == b.DType {
		if want, got, advice = a.Agreed.Difference(&b.Agreed); want != "" {
			return want, got, advice
		}
	}
	if want, got = differenceOfCalls(a, b); strings.HasPrefix(want, "tag ") && max(a.Tag, b.Tag) > math.MaxInt32 {
		advice = errors.New("if these are tags of cp.Ring, they are checksums of the documents: all ranks that divide sequences need the same " +
			"ones in each step (give the loader the group of the ranks with other rows)")
	}
	return want, got, advice
}

// differenceOfCalls is difference for what the program gives an operation.
func differenceOfCalls(a, b *Desc) (want, got string) {
	k := a.Kind
	switch {
	case a.Group == "" || b.Group == "": // it was too long for a message (EncodeJSON)
		return "", ""
	case a.Group != b.Group:
		return "group " + a.Group, "group " + b.Group
	case a.Seq != b.Seq:
		return fmt.Sprintf("%v seq %d", k, a.Seq), fmt.Sprintf("%v seq %d", b.Kind, b.Seq)
	case k.paired() != b.Kind.paired():
		return fmt.Sprintf("%v seq %d", k, a.Seq), fmt.Sprintf("%v seq %d", b.Kind, b.Seq)
	case k.typed() && a.DType != b.DType:
		return fmt.Sprintf("dtype %v", a.DType), b.DType.String()
	case k.paired() == Send && a.Tag != b.Tag:
		return fmt.Sprintf("tag %d", a.Tag), fmt.Sprint(b.Tag)
	case k.counted() && a.Count != b.Count:
		return fmt.Sprintf("count %d", a.Count), fmt.Sprint(b.Count)
	case k.Reduces() && a.Red != b.Red:
		return fmt.Sprintf("op %v", a.Red), b.Red.String()
	case k.rooted() && a.Root != b.Root:
		return fmt.Sprintf("root %d", a.Root), fmt.Sprint(b.Root)
	case a.Device != b.Device:
		places := map[bool]string{false: "host memory", true: "device memory"}
		return places[a.Device], places[b.Device]
	case a.Algo != b.Algo:
		return "algorithm " + a.algorithm(), b.algorithm()
	case a.Row != b.Row:
		return fmt.Sprintf("rows of %d elements", a.Row), fmt.Sprint(b.Row)
	}
	for i := range min(len(a.Counts), len(b.Counts)) {
		if a.Counts[i] != b.Counts[i] {
			return fmt.Sprintf("counts[%d] = %d", i, a.Counts[i]), fmt.Sprint(b.Counts[i])
		}
	}
	return "", ""
}

// algorithm returns the forced algorithm, or the one that runs by default.
func (d *Desc) algorithm() string {
	if d.Algo == "" {
		return fmt.Sprintf("%q by default", d.Choice)
	}
	return fmt.Sprintf("%q", d.Algo)
}

// RowsMismatch returns the Error of an AllToAllV in which rank from sends sent elements to rank to, which expects want elements. row is
// the number of elements in a row (Op.Row).
func RowsMismatch(op *Op, group string, from, to, sent, want, row int) *Error {
	row = max(row, 1)
	return &Error{Rank: to, Group: group, Op: op.Asked().String(), Seq: op.Seq,
		Cause: fmt.Errorf("rank %d sends %d rows to rank %d, which expects %d", from, sent/row, to, want/row)}
}
