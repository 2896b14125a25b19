package launch

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// workerAttr puts a worker into a process group of its own, so that everything it starts can be ended with it, and has it
// killed when the agent dies. The kernel counts the death of the THREAD that forked as the agent's.
func workerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has ended but not been reaped: its number is still taken.
func awaitExit(cmd *exec.Cmd) {
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
