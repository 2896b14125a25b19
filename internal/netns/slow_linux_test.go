package netns_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/internal/netns"
)

// A connection is refused after a round trip, and not before.
func TestSlowHosts(t *testing.T) {
	const latency = 40 * time.Millisecond
	h := netns.NewSlow(t, latency, 10<<20)
	start := time.Now()
	out, _ := h[0].Command("bash", "-c", "timeout 5 bash -c '</dev/tcp/"+h[1].Addr+"/9' 2>&1").CombinedOutput()
	assert.Contains(t, string(out), "refused")
	assert.GreaterOrEqual(t, time.Since(start), 2*latency)
}
