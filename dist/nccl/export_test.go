package nccl

import "time"

// SetPatience sets after how long a call holds up no other.
func SetPatience(d time.Duration) (reset func()) {
	before := patience
	patience = d
	return func() { patience = before }
}
