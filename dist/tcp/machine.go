package tcp

import (
	"os"
	"strings"
)

// machine returns a name that processes share when they run under one kernel in one network namespace. Host names do not
// tell: two containers, or two hosts of a badly set up cluster, may have the same one. Where the system has no such name,
// the host's must do.
func machine(host string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return host
	}
	net, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return host
	}
	return strings.TrimSpace(string(boot)) + " " + net
}
