package holder

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen is net.Listen for TCP. If the port is in use, the error names the process, if the system tells.
func Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		if who := Of(addr); who != "" {
			err = fmt.Errorf("%w by %s", err, who)
		}
	}
	return l, err
}
