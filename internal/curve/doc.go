// Package curve draws values by step: a panel for each name, with what the eye should follow over what was measured, and a heat map for names
// with an index.
package curve
