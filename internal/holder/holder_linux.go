package holder

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const listening = "0A" // TCP_LISTEN in /proc/net/tcp

// Of returns the process that listens on the port of addr, such as "process 4711 (train), job nightly". It returns "" if the system does
// not tell, for example about processes of other users.
func Of(addr string) string {
	_, text, err := net.SplitHostPort(addr)
	port, err2 := strconv.ParseUint(text, 10, 16)
	if err != nil || err2 != nil {
		return ""
	}
	links := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(table) // a system without IPv6 has no second one
		for _, inode := range listeners(string(b), port) {
			links["socket:["+inode+"]"] = true
		}
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is right
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && links[to] {
			return process(strings.Split(fd, "/")[2])
		}
	}
	return ""
}

// listeners returns the inodes of the sockets that listen on port, from a table such as /proc/net/tcp.
func listeners(table string, port uint64) (inodes []string) {
	for _, line := range strings.Split(table, "\n") {
		f := strings.Fields(line) // number, local address, remote address, state, queues, timer, retransmits, uid, timeout, inode
		if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			inodes = append(inodes, f[9])
		}
	}
	return inodes
}

func process(pid string) string {
	name, _ := os.ReadFile("/proc/" + pid + "/comm")
	text := fmt.Sprintf("process %s (%s)", pid, bytes.TrimSpace(name))
	env, _ := os.ReadFile("/proc/" + pid + "/environ")
	for _, v := range strings.Split(string(env), "\x00") {
		if job, ok := strings.CutPrefix(v, "RINGO_JOB_ID="); ok && job != "" {
			text += ", job " + job
		}
	}
	return text
}
