// Package values holds what a training measures, such as a loss, by name and step. Ranks sum their parts on the device; Gather
// makes them values that all ranks know, about twice a second, and Write gives them to files and pictures.
package values
