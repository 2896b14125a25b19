//go:build !linux && !darwin

package launch

import (
	"errors"
	"net"
)

var errNoInherit = errors.New("descriptors cannot be inherited on this system")

func takeConn(int) (net.Conn, error) { return nil, errNoInherit }

func dupListener(int) (net.Listener, error) { return nil, errNoInherit }
