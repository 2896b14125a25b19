// Package progress says how far a training has come: a bar on a terminal, a line every few seconds elsewhere, and a line for a
// step that takes long.
package progress
