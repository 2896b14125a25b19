package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringo-ml/ringo/dist/tcp"
)

// noHosts returns why hosts cannot be made from network namespaces here; "" if they can.
func noHosts() string {
	if os.Geteuid() != 0 {
		return "making network namespaces needs root"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "no ip command (iproute2)"
	}
	return ""
}

// twoHosts are two network namespaces with a virtual cable between them. Names have the form ringo-fit-PID, with the process that made
// them.
type twoHosts struct {
	names, addrs [2]string
}

func newHosts() (*twoHosts, error) {
	h := &twoHosts{addrs: [2]string{"10.78.0.1", "10.78.0.2"}}
	for i := range h.names {
		h.names[i] = fmt.Sprintf("ringo-fit-%d-%d", os.Getpid(), i)
		if err := ip("netns", "add", h.names[i]); err != nil {
			return nil, errors.Join(err, h.remove())
		}
	}
	steps := [][]string{{"-n", h.names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", h.names[1]}}
	for i, name := range h.names {
		steps = append(steps, []string{"-n", name, "addr", "add", h.addrs[i] + "/24", "dev", "eth0"},
			[]string{"-n", name, "link", "set", "eth0", "up"}, []string{"-n", name, "link", "set", "lo", "up"})
	}
	for _, s := range steps {
		if err := ip(s...); err != nil {
			return nil, errors.Join(err, h.remove())
		}
	}
	return h, nil
}

func (h *twoHosts) remove() error {
	var errs []error
	for _, name := range h.names {
		if _, err := os.Stat("/run/netns/" + name); err == nil {
			errs = append(errs, ip("netns", "del", name))
		}
	}
	return errors.Join(errs...)
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// runOnHosts is runRanks on two hosts. The first host has the first half of the ranks, and the odd one.
func runOnHosts(spec benchSpec, n int, timeout time.Duration, stderr io.Writer, line func(rank int, text []byte) bool) (err error) {
	hosts, err := newHosts()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hosts.remove()) }()
	args, err := spec.command()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	group, ctx := errgroup.WithContext(ctx) // a failed rank ends the others
	go func() {
		select {
		case <-interrupts():
			cancel()
		case <-ctx.Done():
		}
	}()
	secret := tcp.NewSecret()
	out := &rankLines{line: line, rest: stderr}
	for rank := range n {
		first := (n + 1) / 2
		host, local, beside := 0, rank, first
		if rank >= first {
			host, local, beside = 1, rank-first, n-first
		}
		cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", hosts.names[host]}, args...)...)
		cmd.Env = append(os.Environ(), "RINGO_SHM=0", "RINGO_THREADS=1", "RINGO_TIMEOUT="+timeout.String(), "RINGO_JOB_SECRET="+secret,
			"RINGO_JOB_ID=fit", "RINGO_MASTER="+hosts.addrs[0]+":29400", "RINGO_BIND="+hosts.addrs[host],
			fmt.Sprintf("RINGO_RANK=%d", rank), fmt.Sprintf("RINGO_WORLD_SIZE=%d", n),
			fmt.Sprintf("RINGO_LOCAL_RANK=%d", local), fmt.Sprintf("RINGO_LOCAL_SIZE=%d", beside))
		cmd.Stderr = stderr
		if rank == 0 {
			cmd.Stdout = &wholeLines{to: out}
		}
		group.Go(func() error {
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("rank %d: %w", rank, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// wholeLines is a writer that forwards only complete lines.
type wholeLines struct {
	to   io.Writer
	rest []byte
}

// Write keeps an incomplete line for the next call.
func (w *wholeLines) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	end := strings.LastIndexByte(string(w.rest), '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	_, err := w.to.Write(w.rest[:end])
	w.rest = append(w.rest[:0], w.rest[end:]...)
	return len(p), err
}
