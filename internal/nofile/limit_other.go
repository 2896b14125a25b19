//go:build !unix

package nofile

// limit returns "": no limit is known for this system.
func limit() string { return "" }
