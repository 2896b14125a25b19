package nccl

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist/backend"
)

// The timeout is for one operation: each operation that has run restarts it, also in a group that is never idle.
func TestTimeoutIsOfOneOperation(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	b := &endpoint{spec: backend.Spec{Timeout: time.Minute}, issued: 2, since: long}
	b.slot(2).device = true // and it is not on the stream yet
	b.advance()
	assert.EqualValues(t, 1, b.ran)
	b.checkTime()
	assert.NoError(t, b.err)
}
