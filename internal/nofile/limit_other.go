//go:build !unix

package nofile

// limit returns "": the system has none that is known here.
func limit() string { return "" }
