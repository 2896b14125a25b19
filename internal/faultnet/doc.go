// Package faultnet makes connections in memory on which things go wrong: data is late, lost, doubled, swapped or changed,
// the line is cut, or one direction goes silent while the other one works (half-open). A Plan says what, and a seed makes
// the same plan again. The connections wait on nothing but channels and timers, so they run in testing/synctest bubbles,
// where an hour of silence takes no time.
//
// What goes wrong happens to whole writes: on an unencrypted connection those are the frames of the protocol above.
package faultnet
