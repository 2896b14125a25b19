// Package compare has what a training step knows for comparisons between ranks: a program that is right on one rank may divide by its own
// number of rows, normalize its own rows alone, skip a batch or use another seed on another rank, and the sums over ranks would be wrong
// without a word.
//
// An [Agreement] is what ranks must have alike when they add something up; reductions carry it. A [Fed] is a part of the global batch that
// a step got as input, with what its values add up to. A tape collects both ([Step], [Inputs]), package dist compares them and writes the
// errors and warnings. This package knows no tensor and no tape.
package compare
