//go:build linux || darwin

package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// TestMain turns the test binary into a worker when its first argument names a role.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if role, ok := strings.CutPrefix(os.Args[1], "role:"); ok {
			os.Exit(play(role, os.Args[2:]))
		}
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a worker with the race detector would take a second to exit
	reliability.RunMost(m, 6)
}

// play is what the workers of the tests do. It returns the exit status.
func play(role string, args []string) int {
	env, err := FromEnv(os.Getenv)
	if err != nil {
		fmt.Println(err)
		return 97
	}
	fmt.Printf("pid %d of %s\n", os.Getpid(), role)
	switch role {
	case "ring":
		return playRing(env, args[0], args[1])
	case "lines":
		playLines(env.Rank)
	case "env":
		fmt.Printf("%d/%d local %d/%d from %s listen %d timeout %v threads %d bind %s secret %d job %d\n", env.Rank, env.Size,
			env.LocalRank, env.LocalSize, env.Source, env.ListenFD, env.Timeout, env.Threads, env.Bind, len(env.Secret), len(env.Job))
		fmt.Printf("bind %s master %s ports %v\n", env.Bind, env.Addr, env.Ports)
	case "exit":
		if args[0] == strconv.Itoa(env.Rank) {
			code, _ := strconv.Atoi(args[1])
			return code
		}
	case "sleep":
		block()
	case "ignore":
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ignoring")
		block()
	case "catch":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGINT, syscall.SIGTERM)
		fmt.Println("ready")
		fmt.Print("bye ", <-c)
	case "parent":
		return playParent(args[0], args[1])
	case "full":
		fmt.Print(strings.Repeat("0123456789\n", 5000)) // fits into a pipe
	case "flood":
		for {
			fmt.Println("more and more")
		}
	case "agent":
		return playAgent(args)
	case "poor":
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 24, Max: 24}); err != nil {
			fmt.Println(err)
			return 94
		}
		return playAgent(args)
	case "badfd":
		return playBadFD(env)
	case "show":
		return playShow(env)
	}
	return 0
}

// block waits to be killed; an empty select would be a deadlock in a process with nothing else to do.
func block() { <-time.After(time.Hour) }

// playRing is a tiny job: every rank sends its number to rank 0's inherited listener, then rank faulty has the given
// fault, and the others learn of it by the end of a connection.
func playRing(env Env, fault, faulty string) int {
	w, err := ConnectAgent()
	if err != nil {
		fmt.Println(err)
		return 98
	}
	peers, err := connectRing(env)
	if err != nil {
		fmt.Println(err)
		return 99
	}
	if faulty == strconv.Itoa(env.Rank) {
		switch fault {
		case "none":
			return 0
		case "report":
			_ = w.ReportError(Primary, env.Rank, fmt.Sprintf("allreduce seq 1: count 10 (rank %d) vs 12", env.Rank))
			return 3
		case "reportlate": // after the others have reported their echoes
			for _, p := range peers {
				_ = p.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, p)
			}
			_ = w.ReportError(Primary, env.Rank, "the true cause")
			return 4
		case "reportandhang":
			_ = w.ReportError(Primary, env.Rank, "stuck after this")
			for _, p := range peers {
				p.Close()
			}
			block()
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			block()
		case "stop":
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case "panic":
			panic("no report of this")
		}
	}
	patience := time.Minute
	if fault == "stop" { // nobody notices it but by the timeout
		patience = 300 * time.Millisecond
	}
	return awaitRing(w, peers, patience)
}

// awaitRing waits for the first peer to end, or for the timeout, and reports it.
func awaitRing(w *Worker, peers map[int]net.Conn, timeout time.Duration) int {
	type end struct {
		rank int
		err  error
	}
	ends := make(chan end)
	for rank, p := range peers {
		go func() {
			_ = p.SetReadDeadline(time.Now().Add(timeout))
			_, err := p.Read(make([]byte, 1))
			ends <- end{rank, err}
		}()
	}
	e := <-ends
	if errors.Is(e.err, os.ErrDeadlineExceeded) && len(peers) > 1 {
		_ = w.ReportError(Echo, -1, "no progress")
		return 1
	}
	_ = w.ReportError(Echo, e.rank, fmt.Sprintf("rank %d: %v", e.rank, e.err))
	return 1
}

func connectRing(env Env) (map[int]net.Conn, error) {
	peers := map[int]net.Conn{}
	if env.Rank > 0 {
		c, err := net.Dial("tcp", env.Addr)
		if err != nil {
			return nil, err
		}
		peers[0] = c
		if _, err = fmt.Fprintln(c, env.Rank); err != nil {
			return nil, err
		}
		_, err = bufio.NewReaderSize(c, 16).ReadString('\n') // all have joined
		return peers, err
	}
	l, err := env.Listener()
	if err != nil {
		return nil, err
	}
	if l.Addr().String() != env.Addr {
		return nil, fmt.Errorf("listens on %v, not %s", l.Addr(), env.Addr)
	}
	defer l.Close()
	for len(peers) < env.Size-1 {
		c, err := l.Accept()
		if err != nil {
			return nil, err
		}
		line, err := bufio.NewReaderSize(c, 16).ReadString('\n')
		if err != nil {
			return nil, err
		}
		rank, _ := strconv.Atoi(strings.TrimSpace(line))
		peers[rank] = c
	}
	for _, c := range peers {
		fmt.Fprintln(c)
	}
	return peers, nil
}

func playLines(rank int) {
	for i := range 200 {
		s := fmt.Sprintf("rank %d line %d\n", rank, i)
		if i == 199 {
			s = strings.TrimSpace(s)
		}
		cut := (i * 7) % len(s)
		out := os.Stdout
		if rank%2 == 1 {
			out = os.Stderr
		}
		fmt.Fprint(out, s[:cut])
		fmt.Fprint(out, s[cut:])
	}
}

// playParent starts a child that outlives it: in its process group, or in a session of its own.
func playParent(where, then string) int {
	child := exec.Command(os.Args[0], "role:sleep")
	child.Stdout = os.Stdout
	if where == "session" {
		child = exec.Command("sleep", "1000") // says nothing: nobody may read it any more
		child.Stdout = os.Stdout
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if err := child.Start(); err != nil {
		fmt.Println(err)
		return 96
	}
	fmt.Printf("child %d\n", child.Process.Pid)
	if then == "wait" {
		_ = child.Wait()
	}
	return 0
}

// playAgent is a launcher of its own.
func playAgent(args []string) int {
	ranks, _ := strconv.Atoi(args[0])
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	args = append([]string{os.Args[0]}, args[1:]...)
	err := Run(Config{Ranks: ranks, Args: args, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals})
	if exit, ok := errors.AsType[*ExitError](err); ok {
		fmt.Println(exit.Text)
		return exit.Code
	}
	return 0
}

// playBadFD has environment variables that name descriptors which are no sockets.
func playBadFD(env Env) int {
	_, err := ConnectAgent()
	fmt.Println(err)
	env.ListenFD = 0xffff
	_, err = env.Listener()
	fmt.Println(err)
	return 0
}
