// Package curve draws values by step: a panel for each name, with what the eye should follow over what was measured, and a heat map for
// names with an index. Several trainings share the panels.
//
// style.go has the look of all pictures of ours that have axes: font, colors, and an SVG's colors in dark mode.
package curve
