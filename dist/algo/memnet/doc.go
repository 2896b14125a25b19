// Package memnet connects the ranks of a group in the memory of one process, and shows every message to an observer. The
// algorithms of package dist/algo run over it unchanged: their tests count its messages, and "ringo viz" draws them.
package memnet
