package netns

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// NewSlow makes two hosts that are joined by a link with a latency in each direction and a limited rate. Packets go through this process,
// which delays them, and which takes some of the machine's time. It works also on kernels without netem.
func NewSlow(t testing.TB, latency time.Duration, bytesPerSecond int) []*Host {
	t.Helper()
	if why := missing(); why != "" {
		t.Skipf("no network namespaces: %s", why)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("no TUN devices: %v", err)
	}
	id := fmt.Sprintf("s%x-%x", os.Getpid(), made.Add(1))
	hosts, ends := make([]*Host, 2), make([]*os.File, 2)
	for i := range hosts {
		h := &Host{Name: fmt.Sprintf("%sn%d", id, i), Addr: fmt.Sprintf("10.78.0.%d", i+1), t: t}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", h.Name).Run() })
		ip(t, "netns", "add", h.Name)
		device := fmt.Sprintf("%st%d", id, i)
		f, err := openTUN(device)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		ip(t, "link", "set", device, "netns", h.Name)
		ip(t, "-n", h.Name, "link", "set", device, "name", "eth0", "mtu", "60000", "up")
		ip(t, "-n", h.Name, "addr", "add", h.Addr+"/24", "dev", "eth0")
		ip(t, "-n", h.Name, "link", "set", "lo", "up")
		hosts[i], ends[i] = h, f
	}
	go carry(ends[1], ends[0], latency, bytesPerSecond)
	go carry(ends[0], ends[1], latency, bytesPerSecond)
	return hosts
}

// openTUN makes a device for IP packets.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("TUN device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

type packet struct {
	bytes []byte
	at    time.Time // when it arrives
}

// carry moves packets from one interface to the other until they are closed. When its queue is full, packets wait in the queue of the
// device.
func carry(to, from *os.File, latency time.Duration, bytesPerSecond int) {
	queue := make(chan packet, 256)
	go func() {
		for p := range queue {
			time.Sleep(time.Until(p.at)) //sleep: this is the link's latency
			_, _ = to.Write(p.bytes)     // a device that is down drops packets, as a pulled cable does
		}
	}()
	defer close(queue)
	free := time.Now()
	for {
		buf := make([]byte, 1<<16)
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if now := time.Now(); free.Before(now) {
			free = now
		}
		free = free.Add(time.Duration(float64(n) / float64(bytesPerSecond) * float64(time.Second)))
		queue <- packet{buf[:n], free.Add(latency)}
	}
}
