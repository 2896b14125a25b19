//go:build noasm || !amd64

package kernel

// controlNow returns 0: there is no assembly that could change the control register.
func controlNow() uint32 { return 0 }
