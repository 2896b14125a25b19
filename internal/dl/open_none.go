//go:build nodl || !(linux || darwin || windows)

package dl

// Enabled reports whether this binary can open libraries.
const Enabled = false

func open(string) (uintptr, error) { return 0, errNoDL }

func symbol(uintptr, string) (uintptr, error) { return 0, errNoDL }

// invoke is never called: without a library there is no address.
func invoke(uintptr, []uintptr) uintptr { panic(errNoDL) }
