// Package held says which elements of parameters a rank counts in a sum over ranks, so that each element counts once, and compares settings
// of ranks.
package held
