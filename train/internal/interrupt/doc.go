// Package interrupt notes the first signal that asks a program to end, and lets a later one kill.
package interrupt
