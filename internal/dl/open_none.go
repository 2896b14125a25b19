//go:build nodl || !(linux || darwin || windows)

package dl

// Enabled says whether this binary can open libraries at all.
const Enabled = false

func open(string) (uintptr, error) { return 0, errNoDL }

func symbol(uintptr, string) (uintptr, error) { return 0, errNoDL }

// invoke cannot be reached: no library was opened, so there is no address.
func invoke(uintptr, []uintptr) uintptr { panic(errNoDL) }
