package nccl

import "time"

// SetPatience sets after how long a call holds up no other.
func SetPatience(d time.Duration) (reset func()) { return set(&patience, d) }

// SetBounds sets how long a failure and a Close wait for the driver.
func SetBounds(d time.Duration) (reset func()) {
	quiet, end := set(&quietTime, d), set(&closeTime, d)
	return func() { quiet(); end() }
}

func set(to *time.Duration, d time.Duration) (reset func()) {
	before := *to
	*to = d
	return func() { *to = before }
}
