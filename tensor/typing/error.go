package typing

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/layout"
)

// Clash says which rule of types is broken.
type Clash uint8

// The clashes.
const (
	ClashInput        Clash = iota // a Function needs another kind
	ClashRows                      // an invariant tensor meets rows that differ
	ClashFeatures                  // an invariant tensor meets a part of the features
	ClashOwn                       // an invariant tensor meets a mean over one rank's rows
	ClashRowsFeatures              // rows meet a part of the features
	ClashOnce                      // an invariant tensor meets one whose gradient is a partial sum
	ClashPart                      // a partial sum meets a tensor that differs between ranks
	ClashNonlinear                 // a partial sum in an operation that is not linear
	ClashAdded                     // something that is not a partial sum is added to one
	ClashProduct                   // a product of partial sums
	ClashMask                      // random numbers for elements whose place is not known
	ClashWhole                     // a mean or a loss over a part of the features
	ClashLoss                      // the loss of Backward or WithAux is not a part of a sum
	ClashGrad                      // a given gradient does not have the dual kind of the output
	ClashLay                       // contradictory calls of Param.Place and Param.SumOver
	ClashStatistics                // statistics of this rank's rows only
	ClashHeld                      // what is the same on all ranks has an element for each of this rank's rows
)

// frozen is for the gradient of a Leaf that all ranks have alike: those of parameters, which ranks add up, do not belong to it.
const frozen = "the gradient of a Leaf that all ranks have alike needs frozen parameters (Param.Freeze)"

// clashTexts say what is wrong. %[1]s is the first input of one kind, %[2]s that of the other.
var clashTexts = [...]string{
	ClashInput: "must be %[2]s",
	ClashRows: "%[1]s is the same on all ranks and counts its gradient once, %[2]s is other rows on each: " +
		"the gradient lacks the sum over the ranks",
	ClashFeatures: "%[1]s is the same on all ranks and counts its gradient once, %[2]s is a part of the features: " +
		"the gradient lacks the sum over the ranks, or a sum before this operation is missing",
	ClashOwn: "%[1]s is the same on all ranks, %[2]s is made of a mean over this rank's rows",
	ClashRowsFeatures: "%[1]s is this rank's rows, %[2]s this rank's part of the features: rows must be gathered, " +
		"or sent to where that part is",
	ClashOnce: "%[1]s counts its gradient once, that of %[2]s is added up over the ranks: behind autograd.Sum, or by tensor.WithAux, " +
		"a penalty of divided weights or a loss of the whole batch can be added; " + frozen,
	ClashPart:      "%[1]s is a partial sum, %[2]s differs between ranks",
	ClashNonlinear: "%[1]s is a partial sum: it must be summed over the ranks before an operation that is not linear",
	ClashAdded:     "%[1]s is a partial sum: what is added to it would count once for each rank",
	ClashProduct:   "a product of two partial sums is not a partial sum",
	ClashWhole:     "%[1]s is a part of the features: what is made of several of them needs those of the other ranks",
	ClashStatistics: "%[1]s has the sums over this rank's rows, and other ranks hold more rows of the batch: " +
		"nn.SyncBatchNorm(model, &autograd.AllReduce{Group: g}), before the first step, sums them over the ranks",
	ClashMask: "%[1]s differs between ranks along an axis that its Rows do not tell of: different elements would get the same random numbers",
}

// lossTexts say which kind a loss has that it must not have.
var lossTexts = [...]string{
	layout.Replicated: "the loss is computed from the same rows on all ranks, and gradients are summed over them: " +
		"it would count once for each. Does the input lack its Rows? What all ranks compute of all rows needs autograd.Sum or Gather, behind " +
		"which a gradient counts once, in place of AllReduce, AllGather or Copy; " + frozen,
	layout.Varying: "the loss differs between ranks and is not a part of a sum: sum over rows and divide by the global count " +
		"(see GlobalMean), and by no number of ranks; a choice among all rows, as of the largest losses, needs all (autograd.Gather); " +
		"AsPart is for your own sum",
	layout.Cut: "the loss is that of a part of the features: a sum over the ranks is missing",
	layout.Own: "the loss is made of this rank's rows alone, and others have more: divide a sum by the global count (see GlobalMean), " +
		"and by no number of ranks; sum statistics over the ranks (autograd.AllReduce), gather rows that meet each other (autograd.AllGather)",
}

// Error is the cause of a *tensor.Failure: the types of tensors do not fit along an axis of the job.
type Error struct {
	Axis       int
	Name       string // of the axis, set by package dist
	Clash      Clash
	Have, Want layout.Kind
	Text       string // what is wrong
	See        string // what to do about it, set by package dist
}

// Error names the axis and says what is wrong.
func (e *Error) Error() string {
	axis, text := e.Name, e.Text
	if axis == "" {
		axis = fmt.Sprint(e.Axis)
	}
	if text == "" {
		text = fmt.Sprintf("the input is %v, must be %v", e.Have, e.Want)
	}
	if e.See != "" {
		text += "; " + e.See
	}
	return "axis " + axis + ": " + text
}

// Error returns the error of a misfit of inputs, which have names.
func (m Misfit) Error(in []Operand) *Error {
	e := &Error{Axis: m.Axes.First(), Clash: m.Clash, Have: m.Have, Want: m.Want}
	if m.Clash == ClashLoss {
		e.Text = lossTexts[m.Have]
		return e
	}
	e.Text = fmt.Sprintf(clashTexts[m.Clash]+"%[3]s", which(in, e.Axis, m.Have), which(in, e.Axis, m.Want), Kinds(in, e.Axis))
	return e
}

// which returns the name of the first input of kind k.
func which(in []Operand, axis int, k layout.Kind) string {
	for _, x := range in {
		if !x.None && x.Types.At(axis) == k {
			return x.Name
		}
	}
	return k.String()
}

// Kinds lists the kinds of inputs along an axis, for errors.
func Kinds(in []Operand, axis int) string {
	var list []string
	for _, x := range in {
		if x.None {
			continue
		}
		s := x.Name + " " + x.Types.At(axis).String()
		if !x.Grad {
			s += ", no gradient"
		}
		list = append(list, s)
	}
	return " (" + strings.Join(list, "; ") + ")"
}
