// Package curve draws values by step: a panel for each name, with what the eye should follow over what was measured.
package curve
