// Package memnet connects the ranks of a group within one process, in memory, and shows every message to an observer. The algorithms of
// package dist/algo run over it unchanged: their tests count its messages, and "ringo viz" draws them.
package memnet
