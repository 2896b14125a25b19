//go:build !noasm

package kernel

// controlNow returns the processor's control register.
func controlNow() uint32 { return controlRegister() }
