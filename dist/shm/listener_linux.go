package shm

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/internal/nofile"
)

// handshakeTime is how long the other end of a connection may take to say who it is.
const handshakeTime = 5 * time.Second

var errSecret = errors.New("the peer does not hold this job's secret")

// Listener is where the ranks of a host get each other's segments: an abstract Unix socket with a random name, which the
// ranks learn from each other.
type Listener struct {
	c     Config
	l     *net.UnixListener
	h     *Host
	files [3]*os.File

	wg       sync.WaitGroup
	mu       sync.Mutex
	peers    map[int]*peer
	changed  chan struct{}
	complete bool
	full     error // why no connection can be accepted at the moment
	err      error // why a peer has failed to connect
}

// Listen makes the segments of this rank and the socket at which peers ask for them.
func Listen(c Config) (*Listener, error) {
	if keptMappings.Load() > 0 {
		runtime.GC() // does not know how large the heap of an earlier job is, which may be waiting for it
	}
	h, files, err := newHost(c.Rank, c.Size)
	if err != nil {
		return nil, explain(err)
	}
	name := make([]byte, 12)
	rand.Read(name) // never fails: crypto/rand ends the program instead
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("@ringo-%d-%x", os.Getpid(), name), Net: "unix"})
	if err != nil {
		h.Close()
		return nil, errors.Join(fmt.Errorf("shm: %w", explain(err)), closeFiles(files[:2]))
	}
	d := &Listener{c: c, l: l, h: h, files: files, peers: map[int]*peer{}, changed: make(chan struct{}, 1)}
	d.wg.Add(1)
	go d.accept()
	return d, nil
}

// Name is what peers must know to connect.
func (d *Listener) Name() string { return d.l.Addr().String() }

// Close gives up what was not met.
func (d *Listener) Close() {
	d.l.Close()
	d.wg.Wait()
	_ = closeFiles(d.files[:2]) // open, or Listen would have failed; the third is the bell's
	if !d.complete {
		for _, p := range d.peers {
			p.unmap()
		}
		d.h.Close()
	}
}

// Rendezvous exchanges segments with the ranks whose listeners have the given names, and returns when all are there. Call it once.
func (d *Listener) Rendezvous(ctx context.Context, names map[int]string) (*Host, error) {
	small := d.h.checkRoom(len(names) + 1)
	var failed error
	for r, name := range names {
		if r >= d.c.Rank {
			continue // it connects to this one
		}
		if err := d.visit(ctx, name, r); err != nil { // the others would wait for this rank
			failed = fmt.Errorf("shm: rank %d: %w", r, explain(err))
		}
	}
	if failed != nil {
		return nil, failed
	}
	for {
		d.mu.Lock()
		missing := -1
		for r := range names {
			if d.peers[r] == nil {
				missing = r
			}
		}
		d.complete = missing < 0 && small == nil
		err, full := d.err, d.full
		d.mu.Unlock()
		if d.complete {
			d.h.peers = d.peers
			return d.h, nil
		}
		if missing < 0 {
			return nil, small // not earlier: peers that have room would wait for this rank
		}
		if err != nil {
			return nil, fmt.Errorf("shm: rank %d cannot connect to map this rank's memory: %w", missing, err)
		}
		select {
		case <-d.changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("shm: rank %d did not connect to map this rank's memory: %w", missing, cmp.Or(full, ctx.Err()))
		}
	}
}

// visit exchanges segments with a rank that listens.
func (d *Listener) visit(ctx context.Context, name string, rank int) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", name)
	if err != nil {
		return err
	}
	return d.exchange(c.(*net.UnixConn), rank)
}

func (d *Listener) accept() {
	defer d.wg.Done()
	for {
		c, err := d.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		d.set(&d.full, err)
		if err != nil {
			time.Sleep(10 * time.Millisecond) //sleep: out of descriptors, most likely; the program may close some
			continue
		}
		d.wg.Go(func() {
			if err := d.exchange(c, -1); errors.Is(err, unix.EMFILE) { // else it is a stranger, or a rank that tells its own user
				d.set(&d.err, err)
			}
		})
	}
}

// set sets one of the reasons for which Rendezvous may end.
func (d *Listener) set(reason *error, err error) {
	d.mu.Lock()
	*reason = explain(err)
	d.mu.Unlock()
	d.signal()
}

// explain says how many descriptors shared memory needs if there are none left.
func explain(err error) error {
	return nofile.Explain(err, "about 4 for shared memory, and 4 for each other rank of the host")
}

func (d *Listener) signal() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// exchange proves to each other that both ends belong to the job, then hands over descriptors both ways. rank is who must
// be at the other end; -1: any rank that comes here.
func (d *Listener) exchange(c *net.UnixConn, rank int) error {
	defer c.Close()
	c.SetDeadline(time.Now().Add(handshakeTime))
	if err := sameUser(c); err != nil {
		return err
	}
	dialing := rank >= 0
	me, err := d.sendHello(c, dialing)
	if err != nil {
		return err
	}
	var theirs hello
	if err := theirs.read(c); err != nil {
		return err
	}
	if !dialing {
		rank = int(theirs.rank)
	}
	if int(theirs.rank) != rank || rank < 0 || rank >= d.c.Size || rank == d.c.Rank || !dialing && rank < d.c.Rank {
		return fmt.Errorf("is rank %d", theirs.rank)
	}
	if _, err := c.Write(d.proof(me, &theirs)); err != nil {
		return err
	}
	proof := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, proof); err != nil {
		return err
	}
	if !hmac.Equal(proof, d.proof(&theirs, me)) {
		return errSecret
	}
	rights := unix.UnixRights(int(d.files[0].Fd()), int(d.files[1].Fd()), d.doorbellFd())
	if _, _, err := c.WriteMsgUnix([]byte{1}, rights, nil); err != nil {
		return err
	}
	fds, err := receive(c)
	if err != nil {
		return err
	}
	p, err := newPeer(rank, fds)
	if err != nil {
		d.set(&d.err, err) // the rank does not come again
		return err
	}
	return d.add(p)
}

func (d *Listener) add(p *peer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.complete || d.peers[p.rank] != nil {
		p.unmap()
		return errors.New("came twice")
	}
	d.peers[p.rank] = p
	d.signal()
	return nil
}

// doorbellFd returns the descriptor of the eventfd without making it block, as File.Fd would.
func (d *Listener) doorbellFd() (fd int) {
	if raw, err := d.files[2].SyscallConn(); err == nil {
		_ = raw.Control(func(n uintptr) { fd = int(n) })
	}
	return fd
}

// hello is what each end says first.
type hello struct {
	rank    uint32
	dialing byte
	nonce   [32]byte
}

const helloBytes = 8 + 4 + 1 + 32

func (h *hello) bytes() []byte {
	b := binary.LittleEndian.AppendUint64(nil, magic)
	b = binary.LittleEndian.AppendUint32(b, h.rank)
	return append(append(b, h.dialing), h.nonce[:]...)
}

func (d *Listener) sendHello(w io.Writer, dialing bool) (*hello, error) {
	g := &hello{rank: uint32(d.c.Rank)}
	if dialing {
		g.dialing = 1
	}
	rand.Read(g.nonce[:])
	_, err := w.Write(g.bytes())
	return g, err
}

func (h *hello) read(r io.Reader) error {
	b := make([]byte, helloBytes)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(b) != magic {
		return errors.New("speaks another protocol")
	}
	h.rank, h.dialing = binary.LittleEndian.Uint32(b[8:]), b[12]
	copy(h.nonce[:], b[13:])
	return nil
}

// proof is what the end that said `from` sends: only who holds the secret can compute it, and it is of no use elsewhere,
// because it covers the job and both nonces.
func (d *Listener) proof(from, to *hello) []byte {
	m := hmac.New(sha256.New, d.c.Secret)
	fmt.Fprintf(m, "ringo/v1 shared memory\n%d %d %q\n", d.c.Gen, d.c.Size, d.c.Job)
	m.Write(from.bytes())
	m.Write(to.bytes())
	return m.Sum(nil)
}

// sameUser refuses processes of other users.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var who *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(cerr, err); err != nil {
		return err
	}
	if int(who.Uid) != os.Geteuid() {
		return fmt.Errorf("process %d is of user %d, this one of user %d", who.Pid, who.Uid, os.Geteuid())
	}
	return nil
}

// receive returns the descriptors that the peer sends.
func receive(c *net.UnixConn) ([]int, error) {
	oob := make([]byte, unix.CmsgSpace(4*8))
	_, n, flags, _, err := c.ReadMsgUnix(make([]byte, 1), oob) // sets close-on-exec
	if err != nil {
		return nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range msgs {
		if more, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	if flags&unix.MSG_CTRUNC != 0 { // the room above is enough for all, so this process had no descriptors left
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, os.NewSyscallError("recvmsg", unix.EMFILE)
	}
	return fds, nil
}
