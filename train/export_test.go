package train

import "time"

// SetPatience changes how long a step runs before that is said, and returns how to change it back.
func SetPatience(d time.Duration) (back func()) {
	old := patience
	patience = d
	return func() { patience = old }
}
