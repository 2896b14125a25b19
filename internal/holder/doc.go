// Package holder finds the process that listens on a port, for the error text of a process that cannot listen there.
package holder
