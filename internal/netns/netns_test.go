package netns_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/internal/netns"
)

// TestHosts pings with a TCP connection: if it is refused, it has reached its host.
func TestHosts(t *testing.T) {
	h := netns.New(t, 2)
	reach := func() string {
		out, _ := h[0].Command("bash", "-c", "timeout 0.2 bash -c '</dev/tcp/"+h[1].Addr+"/9' 2>&1; echo $?").CombinedOutput()
		return string(out)
	}
	reached := func() bool { return strings.Contains(reach(), "refused") }
	assert.Eventually(t, reached, 20*time.Second, time.Millisecond) // a cable may take a moment until it carries
	h[1].Cut()
	assert.Equal(t, "124\n", reach(), "a cut cable loses packets")
	h[1].Mend()
	assert.Eventually(t, reached, 20*time.Second, time.Millisecond)
	here, _ := h[0].Command("readlink", "/proc/self/ns/net").Output()
	there, _ := h[1].Command("readlink", "/proc/self/ns/net").Output()
	assert.NotEqual(t, string(here), string(there))
}
