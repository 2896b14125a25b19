package dist

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A context that is derived from the timer's context may notice its end only later, when the timer is set again. Package context panics
// if such a parent has no error any more.
func TestDeadlineTimerThatIsSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a deadlineTimer
		defer a.stop()
		first := a.set(time.Second)
		assert.Equal(t, first, a.set(2*time.Second), "the deadline moves")
		time.Sleep(1500 * time.Millisecond)
		assert.NoError(t, first.Err())
		<-first.Done()
		again := a.set(time.Second)
		assert.ErrorIs(t, first.Err(), context.DeadlineExceeded)
		assert.NoError(t, again.Err())
		a.clear()
		time.Sleep(2 * time.Second)
		assert.NoError(t, again.Err(), "taken back")
	})
}
