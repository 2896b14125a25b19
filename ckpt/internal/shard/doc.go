// Package shard describes which elements of a tensor a rank holds, and where they are in the whole tensor. It reads and
// writes nothing.
//
//   - part.go: Part, a flat range of boxes; its runs of consecutive elements; Tile, whether parts make up a tensor.
//   - rule.go: Rules, how tensor parallelism cuts a tensor into boxes.
//   - cut.go: a parameter that is stored as rows of several tensors.
//   - transpose.go: a matrix that is stored as its transpose.
package shard
