// Package layout says how things are divided over ranks. Its values know nothing of devices, tapes or groups, so that every package can
// say it in the same words, and tests can compare them with every rank's elements.
//
//   - share.go: Share, the one rule for parts of a number that the ranks do not divide.
//   - box.go: Box, a rectangle of a tensor, and where its elements are.
//   - division.go: Division, how ranks divide a tensor.
//   - placement.go: Placement, how a parameter is divided, and what this rank has of it; counted.go: which rank counts what several have.
package layout
