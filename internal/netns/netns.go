package netns

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Host is a namespace with an address.
type Host struct {
	Name  string // name of the namespace
	Addr  string // IPv4 address that the other hosts can reach
	cable string // the bridge's interface for this host
	t     testing.TB
}

var made atomic.Int32

// New makes n hosts on their own network. They are removed when the test ends.
func New(t testing.TB, n int) []*Host {
	t.Helper()
	if why := missing(); why != "" {
		t.Skipf("no network namespaces: %s", why)
	}
	id := fmt.Sprintf("r%x-%x", os.Getpid(), made.Add(1)) // names of interfaces have at most 15 characters
	bridge := id + "b"
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", bridge).Run() })
	ip(t, "link", "add", bridge, "type", "bridge")
	ip(t, "link", "set", bridge, "up")
	hosts := make([]*Host, n)
	for i := range hosts {
		h := &Host{Name: fmt.Sprintf("%sn%d", id, i), Addr: fmt.Sprintf("10.77.0.%d", i+1), cable: fmt.Sprintf("%sc%d", id, i), t: t}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", h.Name).Run() })
		ip(t, "netns", "add", h.Name)
		ip(t, "link", "add", h.cable, "type", "veth", "peer", "name", "eth0", "netns", h.Name)
		ip(t, "link", "set", h.cable, "master", bridge, "up")
		ip(t, "-n", h.Name, "addr", "add", h.Addr+"/24", "dev", "eth0")
		ip(t, "-n", h.Name, "link", "set", "eth0", "up")
		ip(t, "-n", h.Name, "link", "set", "lo", "up")
		hosts[i] = h
	}
	return hosts
}

// missing returns what is missing for New.
func missing() string {
	if runtime.GOOS != "linux" {
		return "this is not Linux"
	}
	if os.Geteuid() != 0 {
		return "not root"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "no ip command (iproute2)"
	}
	probe := fmt.Sprintf("probe%x-%x", os.Getpid(), made.Add(1)) // tests may run in parallel
	out, err := exec.Command("ip", "netns", "add", probe).CombinedOutput()
	if err != nil {
		return strings.TrimSpace(string(out))
	}
	_ = exec.Command("ip", "netns", "del", probe).Run()
	return ""
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", strings.Join(args, " "), out)
}

// Command returns a command that runs on the host. The program gets the pid of the command, because ip replaces itself by it.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", h.Name, name}, args...)...)
}

// Cut pulls the host's cable: packets are lost, and no side is told.
func (h *Host) Cut() { ip(h.t, "link", "set", h.cable, "down") }

// Mend plugs the cable in again.
func (h *Host) Mend() { ip(h.t, "link", "set", h.cable, "up") }
