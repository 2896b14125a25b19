package dist

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// What was derived from an alarm's context may see only later that it ended, when the alarm is set again: package context
// panics when such a context has no error any more.
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
