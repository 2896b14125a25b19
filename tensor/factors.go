package tensor

import (
	"cmp"
	"math"
	"reflect"
	"runtime"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/internal/where"
	"github.com/ringo-ml/ringo/layout"
)

// Factor is what the host multiplied a sum over rows by, on its way to the loss: all of Scale, Affine, GlobalMean's division and Backward's
// Scale together. So a mean over a rank's rows, times their part of the batch, has the factor of the mean over the batch. With Op, it is
// a number that the operation of this name was given, such as a bound of clamp.
type Factor struct {
	Site   uint64 // a digest of the lines that multiplied; 0: none
	Value  float64
	Op     string
	At     string  // the line of the program that gave the number; of several, the one nearest to the sum
	Own    bool    // it is 1 / the number of this rank's rows, or of their elements, which were summed
	Hand   float64 // the program's part of what multiplies a mean over all rows, or what all ranks have; 0: not known
	Part   bool    // the sum went through AsPart
	part   uint64  // the callSite of the AsPart whose own rows are followed; 0: none
	some   bool    // with part: not all elements alike
	global bool    // GlobalMean is in it
	scaled bool    // another number that multiplies is in it, as that of a Mean
	summed bool    // with Part: a Sum is behind it
	from   uint64  // the callSite of At
}

// Term is the Op of a Factor that is the value of a term which all ranks have, such as a penalty. Own says that it counts on this rank. If
// there were more than maxTerms, a last one has the Value 0.
const Term = "a term of all ranks"

const maxTerms = 8

// maxFactors is the number of different factors of a step that are remembered.
const maxFactors = 64

// firstSteps is the number of steps of a tape that note factors in any case. Owners of gradients compare those of some steps
// (dist.StepCheck): behind the first steps, they ask for them by CompareNext.
const firstSteps = 8

// noting reports whether the tape's step notes factors.
func (t *Tape) noting() bool { return t.stepsDone < firstSteps || t.agreement.Asked() }

// CompareNext makes the tape that last used p note in its next step what ranks compare (factors, values of inputs), as it does in its first
// steps. Owners of gradients call it on all ranks alike.
func (p *Param) CompareNext() {
	if p.last != nil {
		p.last.t.agreement.CompareNext()
	}
}

// ManyFactors is the Site of the last one of Param.Factors if there were more.
const ManyFactors = math.MaxUint64

// codeStart is a place in the binary, which is elsewhere in memory in each process.
var codeStart = reflect.ValueOf(Scale).Pointer()

// callSite returns a digest of where the caller was called, and remembers the line. Ranks may leave out a loss of which they have no rows,
// so factors are compared of one place alone. What a line calls may be a function of many losses: so it is of several lines.
func (t *Tape) callSite() uint64 {
	l := line{}
	n := runtime.Callers(2, l.calls[:])
	for _, pc := range l.calls[:n] {
		l.site = kernel.Key(l.site, uint64(pc-codeStart))
	}
	if t.lines == nil {
		t.lines = make([]line, 0, maxFactors)
	}
	if t.noting() && len(t.lines) < cap(t.lines) && !slices.ContainsFunc(t.lines, func(m line) bool { return m.site == l.site }) {
		t.lines = append(t.lines, l)
	}
	return l.site
}

// line is a place of the program, by its callSite.
type line struct {
	site  uint64
	calls [8]uintptr
}

// lineOf returns the file and line of a callSite, or "".
func (t *Tape) lineOf(site uint64) string {
	i := slices.IndexFunc(t.lines, func(l line) bool { return l.site == site })
	if i < 0 {
		return ""
	}
	return where.Of(t.lines[i].calls[:])
}

// multiply notes that h goes into the loss with a factor. Uses of h add up.
func (t *Tape) multiply(h *header, f Factor) {
	if h.isLeaf() {
		t.noteFactor(f)
		return
	}
	if t.factors == nil {
		t.factors = map[*header]Factor{}
	}
	g := t.factors[h]
	t.factors[h] = Factor{Site: g.Site + f.Site, Value: g.Value + f.Value, from: cmp.Or(g.from, f.from), Hand: g.Hand + f.Hand,
		Part: g.Part || f.Part, global: g.global || f.global, summed: g.summed || f.summed,
		part: cmp.Or(g.part, f.part), some: g.some || f.some, scaled: g.scaled || f.scaled}
}

// beginFactors begins with the parts of sums that ranks add up in a Function.
func (t *Tape) beginFactors(n *Node) {
	for i, h := range n.in {
		if n.op == OpApply && n.Key != 0 && n.need>>i&1 != 0 && t.partOfRows(h) {
			t.multiply(h, Factor{Site: kernel.Key(n.Key, 2), Value: 1, from: n.Key})
		}
	}
}

// partOfRows reports whether h is a part of a sum over the rows of all ranks.
func (t *Tape) partOfRows(h *header) bool { return h != nil && h.ty.On(Partial)&t.rows.Over != 0 }

// takeFactor returns the factor of h, which is complete, and forgets it.
func (t *Tape) takeFactor(h *header) Factor {
	f := t.factors[h]
	delete(t.factors, h)
	return f
}

// moveFactor gives y the factor of x.
func (t *Tape) moveFactor(y, x *header) {
	if f := t.takeFactor(x); f.Site != 0 {
		t.multiply(y, f)
	}
}

// passFactor gives the factor of n's output to the inputs through which a sum over rows came; where the sum was made, it is noted. It
// returns the factor, or 0.
func (t *Tape) passFactor(n *Node) float64 {
	if n.op == OpCheckpoint { // its rule passes it
		return 0
	}
	t.beginFactors(n)
	f := t.takeFactor(n.out)
	if f.part != 0 {
		t.followOwn(n, f)
		f.part = 0
	}
	if n.op == OpAux && n.need&2 != 0 {
		t.multiply(n.in[1], Factor{Site: n.Key, Value: n.F[0] * t.scale, from: n.Key})
	}
	if f.Site == 0 {
		return 0
	}
	if ops[n.op].Rows == RowsAdded && n.Key != 0 { // rows went where the order of this rank's rows says
		t.noteFactor(Factor{Site: kernel.Key(n.Key, 1), Value: 1, Op: OwnRows, Own: true, from: n.Key})
	}
	if n.op == OpAffine {
		if n.F[0] == 0 && n.in[0].ty.On(Partial)|n.out.ty.On(Partial) == 0 { // a penalty that the program itself adds on one rank
			return 0
		}
		switch {
		case n.out.ty.On(Partial)&^n.in[0].ty.On(Partial) != 0: // that of Tape.once
			t.noteTerm(n)
		case n.out.ty.On(Invariant)&^n.in[0].ty.On(Invariant) != 0: // that of Tape.gradOnce
		case n.I[0] != 0:
			f.Site, f.Value, f.global = kernel.Key(f.Site, n.Key), f.Value*n.F[0], true
		default:
			f.Site, f.Value, f.Hand, f.scaled = kernel.Key(f.Site, n.Key), f.Value*n.F[0], f.Hand*n.F[0], true
			f.from = cmp.Or(n.Key, f.from)
		}
		t.multiply(n.in[0], f)
		return f.Value
	}
	if n.op == OpReshape && n.in[0].ty.On(Partial) == 0 && n.out.ty.On(Partial) != 0 { // AsPart
		f.Part, f.Hand, f.part = true, 0, n.Key
		t.noteFactor(f)
		t.multiply(n.in[0], f)
		return f.Value
	}
	f.summed = f.summed || n.op == OpSum
	passed, empty := false, false
	for i, h := range n.in {
		if h == nil {
			continue
		}
		empty = empty || h.n == 0
		if n.op != OpApply && (n.op != OpAux || i == 0) && n.need&(1<<i) != 0 && (h.ty.On(Partial) != 0 || f.Part && addsUp(n.op)) {
			if n.op == OpNeg || n.op == OpSub && i == 1 {
				f.Value = -f.Value
			}
			t.multiply(h, f)
			passed = true
		}
	}
	if !passed && !empty && (f.summed || !f.Part) {
		t.noteOwnMean(n, f)
		count, agreed := t.agreement.Count()
		agreed = agreed && math.Abs(float64(f.Value*count)-1) < 1e-6
		f.Own = !f.global && !t.fed.asked && !agreed && t.ofOwnRows(n, math.Abs(f.Value))
		if !f.global && (n.op == OpSum || f.Part) { // the program divided by a count of its own
			f.Hand = 0
		}
		t.noteFactor(f)
	}
	return f.Value
}

// noteOwnMean notes whether n, which is multiplied by f, is a mean of this tape's elements alone, and not of those of all microbatches. The
// sum of one element is a mean only if something multiplied it.
func (t *Tape) noteOwnMean(n *Node, f Factor) {
	w, b := math.Abs(f.Hand), &t.agreement.Rows
	_, agreed := t.agreement.Count()
	own := b.Total == 0 && !agreed // else an operation divides by these
	if n.op == OpSum {
		w = math.Abs(f.Value) * float64(n.in[0].n) / float64(n.out.n)
		own = (b.Total == 0 || b.N < b.Total) && (f.scaled || n.in[0].n > n.out.n)
	}
	t.ownMean = t.ownMean || own && math.Abs(float64(w/t.scale)-1) < 1e-6
}

// MeansOwn reports whether the loss of the last Backward is a mean over rows of this tape alone, such as x.Mean(), or CrossEntropy without
// Rows and Count. It is false after the first steps.
func (t *Tape) MeansOwn() bool { return t.ownMean }

// addsUp reports whether op adds up what it gets, or passes it on.
func addsUp(op Op) bool {
	return op == OpSum || op == OpAdd || op == OpSub || op == OpNeg || op == OpReshape || op == OpCast
}

// noteTerm notes the value of a term that all ranks have, and whether it counts on this one (see Tape.once).
func (t *Tape) noteTerm(n *Node) {
	x := Factor{Site: kernel.Key(math.Float64bits(n.F[1])), Value: n.F[1], Op: Term, Own: n.F[2] != 0}
	if x.Value == 0 {
		return
	}
	terms := 0
	for _, f := range t.fed.factors {
		if f.Op == Term {
			terms++
		}
	}
	if terms >= maxTerms {
		x = Factor{Site: 1, Op: Term}
	}
	t.noteFactor(x)
}

// ofOwnRows reports whether v is 1 / the number of this rank's rows that n sums, or of its positions in them, or of their elements.
func (t *Tape) ofOwnRows(n *Node, v float64) bool {
	h := n.in[0]
	if n.op != OpSum || h.at.Of == 0 || h.at.Rows().Dims() == 0 {
		return false
	}
	b, each, rows := t.batchAt(h.at), h.n/max(n.out.n, 1), n.out.at.Rows().Dims() != 0 // rows: another Sum follows
	if rows {
		each *= b.N
	}
	if h.at.Seq().Dims() != 0 && n.out.at.Seq().Dims() == 0 && ofOwnPositions(b, each, v) {
		return true
	}
	if b.N < 2 || b.N == b.Total || rows {
		return false
	}
	isShare := func(perRow int) bool {
		total, n := float64(v*float64(b.Total*perRow)), float64(b.N) // total: in how many equal shares v divides the batch
		share := float64(b.Total) / total
		whole := math.Abs(total-math.Round(total)) < 1e-6
		return math.Abs(share/n-1) < 1e-6 || whole && math.Abs(share-n) <= n/8 // in a first batch that is divided unevenly
	}
	return isShare(1) || isShare(each/b.N)
}

// ofOwnPositions reports whether v is 1 / the number of this rank's positions in its rows, or in all rows, or of their elements, of which
// it has n. 1 / the number of all rows may be the same number.
func ofOwnPositions(b *batch, n int, v float64) bool {
	tokens := b.N * b.Positions
	if b.Positions >= b.Seq.Total || tokens < 2 || n < tokens {
		return false
	}
	is := func(count int) bool { return math.Abs(float64(v*float64(count))-1) < 1e-6 }
	return !is(b.Total) && (is(tokens) || is(n) || is(b.Total*b.Positions) || is(n/b.N*b.Total))
}

// noteAffine notes the numbers of Affine. Those of sums over rows are a part of their factors, and by 0 a program leaves out a penalty of
// what all ranks have.
func (t *Tape) noteAffine(x *header, a, b float64) {
	if !t.notes() {
		return
	}
	t.noteAlike(x, 0, a)
	t.noteAlike(x, 1, b)
	if x.ty.On(Partial) != 0 || a == 0 && b == 0 && x.ty.On(Varying) == 0 {
		return
	}
	t.noteOfRows("Scale or Affine", x, 0, a)
	if b != 0 {
		t.noteOfRows("Scale or Affine", x, 1, b)
	}
}

// NoteNumber notes a number of the host that op gets with in, if this is of rows, or depends on parameters and is the same on all ranks. An
// operation may have several, which i numbers. It is called by what the program itself calls.
func (t *Tape) NoteNumber(op string, in Tensor, i int, v float64) {
	if t.notes() {
		t.noteAlike(in.hdr(), i, v)
		t.noteOfRows(op, in.hdr(), i, v)
	}
}

// noteOfRows notes a number for the comparison between ranks with other rows.
func (t *Tape) noteOfRows(op string, x *header, i int, v float64) {
	axes := x.ty.On(Varying)
	if x.needs {
		axes |= x.ty.On(Replicated) | x.ty.On(Invariant)
	} else if t.constant(x) && math.Abs(v) != float64(t.rows.First) { // such as labels from the rank's first row on
		axes |= x.ty.On(Replicated)
	}
	if axes&t.rows.Over == 0 {
		return
	}
	site := t.callSite()
	f := Factor{Site: kernel.Key(site, uint64(i)), Value: v, Op: op, from: site}
	if x.n == 1 && x.ty.On(Varying) == 0 && x.needs {
		f.Hand = v
	}
	t.noteFactor(f)
}

// notes reports whether the tape notes the numbers of operations.
func (t *Tape) notes() bool {
	return t.noting() && !t.inBackward && !t.quiet && (t.training || t.noGrad)
}

// takeNumbers notes the numbers that another tape got, such as a teacher's, a tensor of which is an input.
func (t *Tape) takeNumbers(of *Tape) {
	if !of.noGrad || !t.compares() {
		return
	}
	for _, f := range of.fed.factors {
		f.At, f.from = of.lineOf(f.from), 0
		t.noteFactor(f)
	}
}

// constant reports whether x is the same on all ranks, and has no other element for each row, nor for each position.
func (t *Tape) constant(x *header) bool {
	equal := x.at.Flat()&layout.Repeated == layout.Repeated
	return t.rows.Seq.Total == 0 && x.ty == (Types{}) && x.dtype.IsFloat() && (equal || x.n == 1 || x.dims[0] != t.rows.N)
}

// noteFields notes the floats in the fields of a Function. Of one behind a pointer, it does so when it is applied for the first time: later
// they may have what Forward kept.
func (t *Tape) noteFields(f Function, in []*header) {
	if !t.noting() || !t.training || t.quiet || len(t.applied) == maxFactors {
		return
	}
	v := reflect.ValueOf(f)
	if v.Kind() == reflect.Pointer {
		if t.applied[f] {
			return
		}
		if t.applied == nil {
			t.applied = map[Function]bool{}
		}
		t.applied[f] = true
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		t.noteFloats(f.Name(), v, in, 0)
	}
}

// noteFloats notes those of a struct, and of structs in it, and returns the number of the next one.
func (t *Tape) noteFloats(name string, v reflect.Value, in []*header, number int) int {
	for i := range v.NumField() {
		x := v.Field(i)
		if number++; x.Kind() == reflect.Struct {
			number = t.noteFloats(name, x, in, number)
		}
		if !x.CanFloat() || !t.notes() {
			continue
		}
		for _, h := range in {
			if t.record { // else nobody knows what the Function makes of it
				t.noteAlike(h, number, x.Float())
			}
			t.noteOfRows(name, h, number, x.Float())
		}
	}
	return number
}

// noteFactor notes the factor of a sum. A rank without rows has sums of nothing, which it may divide by anything. A loss that is no number
// shows itself.
func (t *Tape) noteFactor(x Factor) {
	if t.hasNoRows() || math.IsNaN(x.Value) || math.IsInf(x.Value, 0) {
		return
	}
	f := &t.fed
	switch n := len(f.factors) - f.same; {
	case n > maxFactors || slices.ContainsFunc(f.factors, x.Same):
		return
	case x.Op == Same:
		f.same++
	case n == maxFactors:
		x = Factor{Site: ManyFactors}
	}
	f.factors = append(f.factors, x)
}

// Same reports whether x and y are of one place, and differ at most by rounding.
func (x Factor) Same(y Factor) bool {
	return x.Site == y.Site && math.Abs(x.Value-y.Value) <= 2e-7*math.Abs(y.Value)
}
