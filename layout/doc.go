// Package layout says how things are divided over the ranks of a job, as values: it knows no tensor, no device, no tape and no group. So
// every package can say it in the same words, and tests can compare it with every rank's elements.
//
// A job has up to eight axes, such as dp and tp. On each of them a tensor has a [Kind]: the same on all ranks, other rows of the batch on
// each, a partial sum, and so on; [Types] holds all eight. [Rows] is the rectangle of the global batch that a rank works on.
//
// A [Place] says in which dimensions of a tensor these rows are, and the positions of their sequences, with a [Spot] for each. It follows
// them through the operations that move elements: Reshape, Permute, Slice, Pad, Concat; through sums (Reduce, Contract), and where two
// tensors meet (Meet). So it is known, for example, that the sum over dimension 0 of a [rows, features] tensor is a partial sum of the
// batch, that the features of one row are not, and that a table of one value for each of a rank's rows cannot be the same on all ranks.
// These rules are tested by brute force: each element carries the numbers of its row and position, random chains of operations move the
// elements, and what the Place says must be true of each.
//
// A [Placement] says how a parameter is divided by [Division]s, and what this rank has of it: [Box]es of the model's tensor. [Share] is the
// one rule for parts of a number that the ranks do not divide. [Counted] says which rank counts what several have.
//
// So a Place is of an activation, and changes with each operation; a Placement is of a parameter, and stays. What PyTorch's DTensor calls a
// placement is a Kind.
//
// axes.go has Kind, Types and Axis, rows.go Rows and Batch. Read spot.go before place.go; reshape.go and meet.go have the two hard rules of
// places. For parameters: box.go, division.go, placement.go. share.go and counted.go are small rules of their own.
package layout
