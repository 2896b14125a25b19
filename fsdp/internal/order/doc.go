// Package order decides what a rank does with its units, and in which order: gather them, free them, reduce their gradients. It has no
// values, no memory and no group. What a tape and an optimizer do are its events. Each returns actions, which package fsdp carries out one
// after the other. So all ranks issue the same messages in one order, whatever each of them uses.
//
// testdata/transcripts.txt is where to start reading: it shows events, and the actions that follow them.
package order
