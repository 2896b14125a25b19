// Package typing has the rules of types: what an operation makes of the kinds of its inputs ([layout.Types]), which of them do not fit each
// other, and what the error says. It knows no tensor and no tape.
//
// An operation has a [Class], which says how it treats partial sums. A tape adds up the types of the inputs ([Inputs]) for each operation,
// which costs a few instructions. Where something might not fit, [Inputs.Fit] looks closer, and returns a [Misfit]. The failure has an
// [Error], to which package dist adds the name of the axis and what to do.
package typing
