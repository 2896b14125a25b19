//go:build linux || darwin

package launch

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// takeConn makes a connection of an inherited socket and closes the descriptor. A descriptor that is no socket belongs to
// someone else and stays as it is.
func takeConn(fd int) (net.Conn, error) {
	if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return nil, fmt.Errorf("no socket: %w", err)
	}
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "agent")
	defer f.Close()
	return net.FileConn(f)
}

// dupListener makes a listener of a copy of an inherited socket.
func dupListener(fd int) (net.Listener, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(dup), "listener")
	defer f.Close()
	return net.FileListener(f)
}
