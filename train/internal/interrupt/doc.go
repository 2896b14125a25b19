// Package interrupt notes the first signal that asks a program to end, and lets the second one kill.
package interrupt
