package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Most commands of tests do nothing to their process. They run in processes that run one after the other: the start of each takes
// longer than most commands.

// ask is a command line, with the folder for temporary files and the working directory; answer is what came of it.
type ask struct {
	Args     []string
	Tmp, Dir string
}
type answer struct {
	Stdout, Stderr string
	Code           int
}

// serveCommands runs command lines until there are no more.
func serveCommands(in io.Reader, out io.Writer) {
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var a ask
		if requests.Decode(&a) != nil {
			return
		}
		if err := replies.Encode(serveCommand(a)); err != nil {
			panic(err)
		}
	}
}

func serveCommand(a ask) answer {
	defer setEnviron(os.Environ()) // a command may change its own
	os.Setenv("TMPDIR", a.Tmp)
	if err := os.Chdir(a.Dir); err != nil {
		panic(err)
	}
	var printed [2]string
	var done sync.WaitGroup
	streams := [2]*os.File{os.Stdout, os.Stderr}
	for i, stream := range []**os.File{&os.Stdout, &os.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		*stream = w
		done.Go(func() {
			defer r.Close()
			text, _ := io.ReadAll(r)
			printed[i] = string(text)
		})
	}
	code := ringo(a.Args)
	os.Stdout.Close()
	os.Stderr.Close()
	os.Stdout, os.Stderr = streams[0], streams[1]
	done.Wait()
	return answer{printed[0], printed[1], code}
}

func setEnviron(list []string) {
	os.Clearenv()
	for _, pair := range list {
		name, value, _ := strings.Cut(pair, "=")
		os.Setenv(name, value)
	}
}

// servable reports whether a command does to its process no more than another one would do: ringo run becomes the parent of all
// processes, doctor and GPUs open libraries, and help ends the process.
func servable(args []string) bool {
	if len(args) == 0 || slices.Contains([]string{"run", "doctor"}, args[0]) {
		return false
	}
	return !slices.ContainsFunc(args, func(arg string) bool { return slices.Contains([]string{"-h", "-help", "-device", "mpi", "nccl"}, arg) })
}

// server is a process that runs commands.
type server struct {
	requests *json.Encoder
	replies  *json.Decoder
}

// servers are those that nobody uses now, by their environment.
var servers struct {
	sync.Mutex
	env  []string
	idle []*server
}

// runServed is run in a process that has run other commands, with the same environment.
func runServed(t *testing.T, args []string) (stdout, stderr string, code int) {
	t.Helper()
	var s *server
	env := os.Environ()
	servers.Lock()
	if !slices.Equal(env, servers.env) {
		servers.env, servers.idle = env, nil
	}
	if n := len(servers.idle); n > 0 {
		s, servers.idle = servers.idle[n-1], servers.idle[:n-1]
	}
	servers.Unlock()
	if s == nil {
		s = startServer(t)
	}
	dir, err := os.Getwd()
	require.NoError(t, err)
	tmp := t.TempDir()
	require.NoError(t, s.requests.Encode(ask{args, tmp, dir}))
	var a answer
	require.NoError(t, s.replies.Decode(&a), "ringo %v ended its process", args)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
	servers.Lock()
	if slices.Equal(env, servers.env) {
		servers.idle = append(servers.idle, s)
	}
	servers.Unlock()
	return a.Stdout, a.Stderr, a.Code
}

// startServer starts a process that ends with its input, at the latest with this process.
func startServer(t *testing.T) *server {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "RINGO_TEST_CLI=serve")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return &server{json.NewEncoder(in), json.NewDecoder(out)}
}
