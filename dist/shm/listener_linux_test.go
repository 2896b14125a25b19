package shm

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// listenerOf returns the Listener of rank 1 of 3.
func listenerOf(t *testing.T, change func(c *Config)) *Listener {
	c := Config{Rank: 1, Size: 3, Secret: []byte("secret"), Job: "test", Gen: 4}
	if change != nil {
		change(&c)
	}
	d, err := Listen(c)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// tryHello tells d to be a rank, and returns how many bytes d says: a greeting, then its proof if it lets the rank
// in.
func tryHello(t *testing.T, d *Listener, rank int) int {
	raw, err := net.Dial("unix", d.Name())
	require.NoError(t, err)
	defer raw.Close()
	require.NoError(t, raw.SetDeadline(time.Now().Add(10*time.Second)))
	if rank >= 0 {
		me := Listener{c: d.c}
		me.c.Rank = rank
		_, err = me.sendHello(raw, true)
		require.NoError(t, err)
	}
	b := make([]byte, 1000)
	n, _ := io.ReadAtLeast(raw, b, helloBytes+32)
	return n
}

// A Listener is for the higher ranks of the job.
func TestListenerKnowsRanks(t *testing.T) {
	d := listenerOf(t, nil)
	for _, rank := range []int{0, 1, 3, 1 << 30} {
		assert.Equal(t, helloBytes, tryHello(t, d, rank), "rank %d", rank)
	}
	assert.Equal(t, helloBytes+32, tryHello(t, d, 2), "else it is let in, as far as its proof")
}

// Who connects to a rank and finds another one goes away.
func TestListenerOfAnotherRank(t *testing.T) {
	d := listenerOf(t, nil)
	two := listenerOf(t, func(c *Config) { c.Rank = 2 })
	_, err := two.Rendezvous(t.Context(), map[int]string{0: d.Name()})
	assert.EqualError(t, err, "shm: rank 0: is rank 1")
}

// The proof covers the secret, the job, its size and its generation.
func TestListenerOfAnotherJob(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, change := range map[string]func(c *Config){
		"secret":     func(c *Config) { c.Secret = []byte("another") },
		"job":        func(c *Config) { c.Job = "another" },
		"size":       func(c *Config) { c.Size = 4 },
		"generation": func(c *Config) { c.Gen = 5 },
	} {
		d := listenerOf(t, nil)
		two := listenerOf(t, func(c *Config) { c.Rank = 2; change(c) })
		_, err := two.Rendezvous(ctx, map[int]string{1: d.Name()})
		assert.ErrorIs(t, err, errSecret, name)
	}
	d, two := listenerOf(t, nil), listenerOf(t, func(c *Config) { c.Rank = 2 })
	_, err := two.Rendezvous(ctx, map[int]string{1: d.Name()})
	assert.NoError(t, err, "the same job")
}

// A process of another user gets not even a greeting.
func TestListenerOfAnotherUser(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs to be root, to be somebody else for a moment")
	}
	d := listenerOf(t, nil)
	said := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		const same, nobody = ^uintptr(0), 65534
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, nobody, same); e != 0 { // of this thread only
			said <- -1
			return
		}
		said <- tryHello(t, d, -1)
	}()
	assert.Zero(t, <-said)
	assert.Equal(t, helloBytes, tryHello(t, d, 0), "this user gets one")
}

// withFiles lets this process open only n more descriptors until the test ends, or until the function that it returns is called.
func withFiles(t *testing.T, n int) (restore func()) {
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	var own []int
	limit := 0
	take := func() {
		fd, err := unix.Dup(0)
		require.NoError(t, err)
		own, limit = append(own, fd), max(limit, fd+1)
	}
	for range n + 1 {
		take()
	}
	for fd := 0; fd < limit; fd++ { // no hole below the limit, such as the one that accept(2) leaves when it finds nobody
		for !isOpen(fd) {
			take()
		}
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: old.Max}))
	for _, fd := range own[:n] {
		require.NoError(t, unix.Close(fd))
	}
	restore = sync.OnceFunc(func() {
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
		for _, fd := range own[n:] {
			require.NoError(t, unix.Close(fd))
		}
	})
	t.Cleanup(restore)
	return restore
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

const noFiles = "too many open files: the limit of this process \\(ulimit -n: \\d+\\); needed are about 4 for shared memory, " +
	"and 4 for each other rank"

// A rank without descriptors says so: when it makes its memory, when it connects to another rank, and when another one does not come
// because of that.
func TestListenerWithoutDescriptors(t *testing.T) {
	restore := withFiles(t, 1)
	_, err := Listen(Config{Rank: 0, Size: 2, Secret: []byte("secret"), Job: "test"})
	restore()
	require.Error(t, err)
	assert.Regexp(t, noFiles, err.Error())

	d, two := listenerOf(t, nil), listenerOf(t, func(c *Config) { c.Rank = 2 })
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	restore = withFiles(t, 0)
	_, dialing := two.Rendezvous(t.Context(), map[int]string{1: d.Name()})
	require.NoError(t, unix.Connect(fd, &unix.SockaddrUnix{Name: d.Name()}))
	<-d.changed
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, accepting := d.Rendezvous(ctx, map[int]string{2: two.Name()})
	restore()
	require.Error(t, dialing)
	assert.Regexp(t, "^shm: rank 1: .*"+noFiles, dialing.Error())
	require.Error(t, accepting)
	assert.Regexp(t, "^shm: rank 2 did not connect to map this rank's memory: accept.*"+noFiles, accepting.Error())
}

// comes makes rank 2 connect through a socket, with these descriptors.
func comes(t *testing.T, d *Listener, socket *os.File, fds ...int) {
	fd := int(socket.Fd())
	require.NoError(t, unix.Connect(fd, &unix.SockaddrUnix{Name: d.Name()}))
	two, theirs := &Listener{c: d.c}, hello{}
	two.c.Rank = 2
	me, err := two.sendHello(socket, true)
	require.NoError(t, err)
	require.NoError(t, theirs.read(socket))
	_, err = socket.Write(two.proof(me, &theirs))
	require.NoError(t, err)
	require.NoError(t, unix.Sendmsg(fd, []byte{1}, unix.UnixRights(fds...), nil, 0))
}

// If there is a descriptor for the connection, and none for what the other rank sends through it, or it cannot be mapped, Rendezvous
// ends at once.
func TestListenerWithoutRoomForMemory(t *testing.T) {
	for want, room := range map[string]int{"recvmsg: " + noFiles: 1, "shm: segment 0 of rank 2": 9} {
		d := listenerOf(t, nil)
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		peer := os.NewFile(uintptr(fd), "rank 2")
		defer peer.Close()
		restore := withFiles(t, room)
		comes(t, d, peer, 0, 1, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = d.Rendezvous(ctx, map[int]string{2: "@two"})
		restore()
		require.Error(t, err)
		assert.Regexp(t, "^shm: rank 2 cannot connect to map this rank's memory: "+want, err.Error())
	}
}

// A rank that cannot meet one rank goes to the listeners of the others: they would wait for it.
func TestListenersAreAllVisited(t *testing.T) {
	for range 5 { // in any order
		d, two := listenerOf(t, nil), listenerOf(t, func(c *Config) { c.Rank = 2 })
		_, err := two.Rendezvous(t.Context(), map[int]string{0: "@nobody", 1: d.Name()})
		require.ErrorContains(t, err, "shm: rank 0: dial unix @nobody")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = d.Rendezvous(ctx, map[int]string{2: two.Name()})
		require.NoError(t, err)
	}
}

// What a peer sends to a process that has not enough descriptors is not there in part.
func TestReceiveWithoutDescriptors(t *testing.T) {
	for room := range 4 {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		conns := make([]*net.UnixConn, 2)
		for i, fd := range ends {
			f := os.NewFile(uintptr(fd), "end")
			c, err := net.FileConn(f)
			require.NoError(t, errors.Join(err, f.Close()))
			conns[i] = c.(*net.UnixConn)
			defer c.Close()
		}
		_, _, err = conns[0].WriteMsgUnix([]byte{1}, unix.UnixRights(0, 1, 2), nil)
		require.NoError(t, err)
		restore := withFiles(t, room)
		fds, err := receive(conns[1])
		restore()
		if room == 3 {
			require.NoError(t, err)
			require.Len(t, fds, 3)
		} else {
			require.ErrorIs(t, err, unix.EMFILE, "%d", room)
			require.Empty(t, fds)
		}
		for _, fd := range fds {
			require.NoError(t, unix.Close(fd))
		}
	}
}

// What a peer has sent cannot be mapped, as where a limit of the address space is smaller: an error, so that the job goes over sockets.
func TestPeerThatCannotBeMapped(t *testing.T) {
	for n := range 4 {
		fds := make([]int, n)
		for i := range fds {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			w.Close()
			fds[i], err = unix.Dup(int(r.Fd()))
			require.NoError(t, err)
			r.Close()
		}
		_, err := newPeer(1, fds)
		assert.Error(t, err, n)
	}
}
