package ckpt

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
)

var errCrash = errors.New("the machine is off")

// crashFS is a file system in memory that models crashes: what was flushed survives, and of the rest any part can be
// lost. It can stop before an operation, or fail one.
type crashFS struct {
	mu     sync.Mutex
	root   *node
	ops    int    // so far
	stop   int    // no operation has an effect from this one on; 0: never
	fail   int    // this operation returns err; 0: none
	err    error  //
	failed string // the first operation that was stopped or failed
	locked map[string]bool
}

// node is a file or a directory. Programs see now; kept survives a crash; a crash may lose changes in lost.
type node struct {
	dir     bool
	entries map[string]*node
	data    []byte

	keptEntries map[string]*node
	lostEntries []entryChange
	keptData    []byte
	lostData    []dataChange
}

// entryChange removes a name, adds one, or both at once (a rename).
type entryChange struct {
	gone  string
	there string
	what  *node
}

// dataChange sets the size, or some bytes.
type dataChange struct {
	size int64
	off  int64
	b    []byte
}

func newDir() *node {
	return &node{dir: true, entries: map[string]*node{}, keptEntries: map[string]*node{}}
}

func newCrashFS() *crashFS { return &crashFS{root: newDir(), locked: map[string]bool{}} }

// step counts an operation and returns an error if it must fail.
func (c *crashFS) step(what string) error {
	c.ops++
	if c.stop > 0 && c.ops >= c.stop {
		if c.ops == c.stop {
			c.failed = what
		}
		return errCrash
	}
	if c.ops == c.fail {
		c.failed = what
		return c.err
	}
	return nil
}

func (c *crashFS) find(name string) (*node, error) {
	n := c.root
	for _, part := range strings.Split(filepath.ToSlash(name), "/") {
		if part == "" || part == "." {
			continue
		}
		next := n.entries[part]
		if next == nil {
			return nil, &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
		}
		n = next
	}
	return n, nil
}

func (n *node) change(x entryChange) {
	n.lostEntries = append(n.lostEntries, x)
	apply(n.entries, x)
}

func apply(entries map[string]*node, x entryChange) {
	delete(entries, x.gone)
	if x.there != "" {
		entries[x.there] = x.what
	}
}

func (d dataChange) apply(data []byte) []byte {
	if d.b == nil {
		return append(data, make([]byte, int(d.size)-len(data))...)
	}
	if short := int(d.off) + len(d.b) - len(data); short > 0 {
		data = append(data, make([]byte, short)...)
	}
	copy(data[d.off:], d.b)
	return data
}

func (c *crashFS) add(name string, n *node) error {
	parent, err := c.find(filepath.Dir(name))
	if err != nil {
		return err
	}
	if parent.entries[filepath.Base(name)] != nil {
		return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	parent.change(entryChange{there: filepath.Base(name), what: n})
	return nil
}

func (c *crashFS) MkdirAll(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.find(name); err == nil {
		return nil
	}
	if err := c.step("mkdir"); err != nil {
		return err
	}
	return c.add(name, newDir())
}

func (c *crashFS) Mkdir(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("mkdir"); err != nil {
		return err
	}
	return c.add(name, newDir())
}

func (c *crashFS) Create(name string, size int64) (disk.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("create"); err != nil {
		return nil, err
	}
	n := &node{}
	n.write(dataChange{size: size})
	return &crashFile{c, n, name}, c.add(name, n)
}

func (c *crashFS) Open(name string, _ bool) (disk.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("open"); err != nil {
		return nil, err
	}
	n, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return &crashFile{c, n, name}, nil
}

func (c *crashFS) Rename(from, to string) error { return c.rename(from, to, false) }

func (c *crashFS) Replace(from, to string) error { return c.rename(from, to, true) }

func (c *crashFS) rename(from, to string, replace bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("rename"); err != nil {
		return err
	}
	n, err := c.find(from)
	if err != nil {
		return err
	}
	parent, err := c.find(filepath.Dir(from))
	if err != nil || filepath.Dir(from) != filepath.Dir(to) || !replace && parent.entries[filepath.Base(to)] != nil {
		return errors.Join(err, fmt.Errorf("rename %s to %s", from, to))
	}
	parent.change(entryChange{filepath.Base(from), filepath.Base(to), n})
	return nil
}

// RemoveAll removes the children first, one by one, because a crash may leave some of them.
func (c *crashFS) RemoveAll(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("remove"); err != nil {
		return err
	}
	n, err := c.find(name)
	if err != nil {
		return nil
	}
	for _, child := range slices.Sorted(maps.Keys(n.entries)) {
		n.change(entryChange{gone: child})
	}
	parent, err := c.find(filepath.Dir(name))
	if err == nil {
		parent.change(entryChange{gone: filepath.Base(name)})
	}
	return err
}

func (c *crashFS) ReadDir(name string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("readdir"); err != nil {
		return nil, err
	}
	n, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

func (c *crashFS) IsDir(name string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.find(name)
	return err == nil && n.dir, err
}

func (c *crashFS) SyncDir(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("syncdir"); err != nil {
		return err
	}
	n, err := c.find(name)
	if err != nil {
		return err
	}
	n.keptEntries, n.lostEntries = maps.Clone(n.entries), nil
	return nil
}

func (c *crashFS) Lock(name string) (unlock func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.locked[name] {
		return nil, disk.ErrHeld
	}
	c.locked[name] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.locked, name)
	}, nil
}

type crashFile struct {
	c    *crashFS
	n    *node
	name string
}

func (n *node) write(d dataChange) {
	n.lostData = append(n.lostData, d)
	n.data = d.apply(n.data)
}

func (f *crashFile) WriteAt(b []byte, off int64) (int, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if err := f.c.step("write"); err != nil {
		half := b[:len(b)/2]
		if err == errCrash {
			half = nil
		}
		if len(half) > 0 {
			f.n.write(dataChange{off: off, b: append([]byte(nil), half...)})
		}
		return len(half), &fs.PathError{Op: "write", Path: f.name, Err: err}
	}
	f.n.write(dataChange{off: off, b: append([]byte{}, b...)})
	return len(b), nil
}

func (f *crashFile) ReadAt(b []byte, off int64) (int, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if err := f.c.step("read"); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *crashFile) Sync() error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if err := f.c.step("sync"); err != nil {
		return &fs.PathError{Op: "sync", Path: f.name, Err: err}
	}
	f.n.keptData, f.n.lostData = append([]byte(nil), f.n.data...), nil
	return nil
}

func (f *crashFile) Size() (int64, error) { return int64(len(f.n.data)), nil }

func (f *crashFile) Close() error { return nil }

// reboot returns the file system after a crash: everything that was flushed, and those other changes that r selects.
func (c *crashFS) reboot(r *rand.Rand) *crashFS {
	done := map[*node]*node{}
	var after func(n *node) *node
	after = func(n *node) *node {
		if done[n] != nil {
			return done[n]
		}
		m := &node{dir: n.dir, data: append([]byte(nil), n.keptData...)}
		done[n] = m
		for _, d := range n.lostData {
			switch r.IntN(3) {
			case 0:
			case 1:
				m.data = d.apply(m.data)
			case 2: // the first part of it
				if d.b != nil {
					d.b = d.b[:r.IntN(len(d.b)+1)]
				}
				if d.b == nil || len(d.b) > 0 {
					m.data = d.apply(m.data)
				}
			}
		}
		m.keptData = append([]byte(nil), m.data...)
		entries := maps.Clone(n.keptEntries)
		for _, x := range n.lostEntries {
			if r.IntN(2) == 0 {
				apply(entries, x)
			}
		}
		if n.dir {
			m.entries, m.keptEntries = map[string]*node{}, map[string]*node{}
			for _, name := range slices.Sorted(maps.Keys(entries)) {
				m.entries[name] = after(entries[name])
				m.keptEntries[name] = m.entries[name]
			}
		}
		return m
	}
	return &crashFS{root: after(c.root), locked: map[string]bool{}}
}

// clone returns a copy in which nothing is lost.
func (c *crashFS) clone() *crashFS {
	var copyOf func(n *node) *node
	copyOf = func(n *node) *node {
		m := &node{dir: n.dir, data: append([]byte(nil), n.data...), keptData: append([]byte(nil), n.data...)}
		if n.dir {
			m.entries, m.keptEntries = map[string]*node{}, map[string]*node{}
			for name, x := range n.entries {
				m.entries[name] = copyOf(x)
				m.keptEntries[name] = m.entries[name]
			}
		}
		return m
	}
	return &crashFS{root: copyOf(c.root), locked: map[string]bool{}}
}

// fingerprint is equal for file systems with equal content.
func (c *crashFS) fingerprint() string {
	h := sha256.New()
	var walk func(n *node)
	walk = func(n *node) {
		fmt.Fprintln(h, n.dir, len(n.data), len(n.entries))
		h.Write(n.data)
		for _, name := range slices.Sorted(maps.Keys(n.entries)) {
			fmt.Fprintf(h, "%q", name)
			walk(n.entries[name])
		}
	}
	walk(c.root)
	return string(h.Sum(nil))
}
