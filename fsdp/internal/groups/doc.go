// Package groups has the groups of the ranks that share units: groups.go makes and uses them, and whole.go makes a parameter of the parts
// that they hold.
package groups
