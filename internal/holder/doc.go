// Package holder tells which process listens on a port, for the error of the one that cannot.
package holder
