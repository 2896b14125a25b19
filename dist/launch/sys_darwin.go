package launch

import (
	"os/exec"
	"syscall"
)

// workerAttr puts a worker into a process group of its own, so that everything it starts can be ended with it. When the
// agent dies, workers notice the end of their socket.
func workerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit reaps the process. Its group is signalled right after, before the system gives its number to another.
func awaitExit(cmd *exec.Cmd) { _ = cmd.Wait() }
