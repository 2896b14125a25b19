package ports

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// Free returns the first of n consecutive ports on which nobody listens. They are below those that systems give to listeners and
// connections that do not ask for one. Until the test ends, no other call returns them, in no process of this machine: a UDP socket holds
// each, and only what speaks TCP is tested.
func Free(t testing.TB, n int) int {
	t.Helper()
	for range 1_000 {
		first := 20_000 + rand.IntN(10_000)
		held := hold(first, n)
		if len(held) == n {
			t.Cleanup(func() { closeAll(held) })
			return first
		}
		closeAll(held)
	}
	t.Fatalf("no %d free ports in a row", n)
	return 0
}

// hold takes ports one after the other, as far as they are free.
func hold(first, n int) (held []io.Closer) {
	for port := first; port < first+n; port++ {
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		udp, err := net.ListenPacket("udp", addr)
		if err != nil {
			return held
		}
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			udp.Close()
			return held
		}
		tcp.Close()
		held = append(held, udp)
	}
	return held
}

func closeAll(held []io.Closer) {
	for _, c := range held {
		c.Close()
	}
}

// Silent returns an address of this host at which nobody listens, and nobody can before the test ends: that of this end of a connection.
func Silent(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}
