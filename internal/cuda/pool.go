package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
)

// Pool is a caching allocator with blocks per stream. A block belongs to the stream
// for which it was allocated. After Free, the same stream may get it again at once,
// because work that is queued later runs later. If other streams used it too (Use),
// the next allocation first makes the stream wait for them. The host never waits,
// the choice of a block does not depend on timing, and in steady state no call
// allocates in the driver or on the Go heap.
//
// Blocks have 16 sizes per doubling, at least 512 bytes apart, and are not split:
// at most 1/16 of a block, or 511 bytes, are wasted.
//
// A captured graph uses the same blocks at every launch: Pin keeps these blocks for
// it.
type Pool struct {
	Name string // what it is for, in the error when there is no memory

	dev    *Device
	exact  bool // neither rounds nor caches: for debugging
	mu     sync.Mutex
	blocks map[Ptr]*block
	free   map[bin][]*block
	spare  []*Event // ready for the next mark
	held   int64    // bytes got from the driver
	used   int64    // bytes given out
}

// bin is a free list: the blocks of one stream and size.
type bin struct {
	stream *Stream
	size   int
}

type block struct {
	ptr   Ptr
	bin   bin
	inUse bool
	pins  int       // graphs that use it
	freed bool      // freed while pinned
	users []*Stream // other streams that use it
	marks []*Event  // the ends of these uses, once freed
}

// NewPool makes an allocator. If a pool finds no memory, all pools of the device
// first give their caches back.
func (dev *Device) NewPool(name string) *Pool {
	p := &Pool{Name: name, dev: dev, exact: debugging(), blocks: map[Ptr]*block{}, free: map[bin][]*block{}}
	dev.mu.Lock()
	dev.pools = append(dev.pools, p)
	dev.mu.Unlock()
	return p
}

// blockSize rounds a size up to a class: 16 per doubling, multiples of 512.
func blockSize(n int) int {
	n = max(n, 1)
	step := max(512, 1<<bits.Len(uint(n-1))>>5)
	return (n + step - 1) / step * step
}

// Alloc returns n bytes for use on stream s, aligned to at least 256 bytes, with
// undefined content. While s is recorded it is an error. If there is no memory, the
// error says how much every pool of the device holds.
func (p *Pool) Alloc(s *Stream, n int) (Ptr, error) {
	if n < 0 {
		panic(fmt.Sprintf("cuda: allocation of %d bytes", n))
	}
	if s.capturing {
		return 0, fmt.Errorf("cuda: pool %q: %s more are asked for while stream %s is recorded: what a graph uses is allocated before",
			p.Name, size(int64(n)), s.Name)
	}
	key := bin{s, blockSize(n)}
	if p.exact {
		key.size = max(n, 1)
	}
	b, err := p.take(key)
	if err != nil {
		return 0, err
	}
	if b != nil {
		return b.ptr, nil
	}
	ptr, err := p.dev.malloc(key.size)
	if IsOutOfMemory(err) {
		if err := p.dev.ReleaseCaches(); err != nil {
			return 0, err
		}
		ptr, err = p.dev.malloc(key.size)
	}
	if IsOutOfMemory(err) {
		return 0, fmt.Errorf("no memory for %s in pool %q: %s: %w", size(int64(key.size)), p.Name, p.dev.usage(), err)
	}
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks[ptr] = &block{ptr: ptr, bin: key, inUse: true}
	p.held += int64(key.size)
	p.used += int64(key.size)
	return ptr, nil
}

// take returns a cached block, or nil: the last freed one that no other stream
// used, else the one that was freed first.
func (p *Pool) take(key bin) (*block, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.free[key]
	if len(list) == 0 {
		return nil, nil
	}
	at := 0
	for i := len(list) - 1; i > 0; i-- {
		if len(list[i].marks) == 0 {
			at = i
			break
		}
	}
	b := list[at]
	for _, e := range b.marks {
		if err := key.stream.Wait(e); err != nil {
			return nil, err
		}
	}
	p.recycle(b)
	p.free[key] = append(list[:at], list[at+1:]...)
	p.used += int64(key.size)
	b.inUse = true
	return b, nil
}

func (dev *Device) allPools() []*Pool {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	return slices.Clone(dev.pools)
}

// recycle makes a block's marks available for other blocks.
func (p *Pool) recycle(b *block) {
	p.spare = append(p.spare, b.marks...)
	b.marks = b.marks[:0]
}

// Use says that a block is also used on stream s, after the work of its own stream;
// the caller orders the two with an event. Free then marks the end of this use.
func (p *Pool) Use(ptr Ptr, s *Stream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, err := p.find(ptr)
	if err != nil || s == b.bin.stream {
		return err
	}
	if !slices.Contains(b.users, s) {
		b.users = append(b.users, s)
	}
	return nil
}

// Free returns a block. Work that was queued before may still use it.
func (p *Pool) Free(ptr Ptr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, err := p.find(ptr)
	if err != nil {
		return err
	}
	for _, s := range b.users {
		e, err := p.mark()
		if err != nil {
			return err
		}
		b.marks = append(b.marks, e)
		if err := e.Record(s); err != nil {
			return err
		}
	}
	b.users = b.users[:0]
	if b.pins > 0 {
		b.freed = true
		return nil
	}
	return p.put(b)
}

// put makes a block available again.
func (p *Pool) put(b *block) error {
	b.inUse, b.freed = false, false
	p.used -= int64(b.bin.size)
	if p.exact {
		return p.drop(b)
	}
	p.free[b.bin] = append(p.free[b.bin], b)
	return nil
}

// Pin keeps the blocks that are in use now for a graph. When they are freed, they
// are not given out again until unpin is called. Call it when the last launch of
// the graph is queued on their streams.
func (p *Pool) Pin() (unpin func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pinned []*block
	for _, b := range p.blocks {
		if b.inUse {
			b.pins++
			pinned = append(pinned, b)
		}
	}
	// so that the order in which they are reused does not depend on the map
	slices.SortFunc(pinned, func(a, b *block) int { return cmp.Compare(a.ptr, b.ptr) })
	return func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		var errs []error
		for _, b := range pinned {
			if b.pins--; b.pins == 0 && b.freed {
				errs = append(errs, p.put(b))
			}
		}
		return errors.Join(errs...)
	}
}

func (p *Pool) mark() (*Event, error) {
	if n := len(p.spare); n > 0 {
		e := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return e, nil
	}
	return p.dev.NewEvent(false)
}

func (p *Pool) find(ptr Ptr) (*block, error) {
	b := p.blocks[ptr]
	if b == nil {
		return nil, fmt.Errorf("cuda: pool %q never gave out address %#x", p.Name, uint64(ptr))
	}
	if !b.inUse || b.freed {
		return nil, fmt.Errorf("cuda: pool %q: address %#x is already free", p.Name, uint64(ptr))
	}
	return b, nil
}

// ReleaseCaches gives the free blocks of all pools of the device back to the
// driver. It waits for the device.
func (dev *Device) ReleaseCaches() error {
	if err := dev.Sync(); err != nil {
		return err
	}
	for _, p := range dev.allPools() {
		if err := p.release(); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pool) release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, list := range p.free {
		for _, b := range list {
			errs = append(errs, p.drop(b))
		}
	}
	clear(p.free)
	return errors.Join(errs...)
}

// drop gives a block back to the driver. It waits for the device.
func (p *Pool) drop(b *block) error {
	p.recycle(b)
	delete(p.blocks, b.ptr)
	p.held -= int64(b.bin.size)
	return p.dev.free(b.ptr)
}

// Close gives the pool's cache back and removes the pool. If blocks are still in
// use, the error says how many bytes they have. It waits for the device.
func (p *Pool) Close() error {
	if err := p.dev.Sync(); err != nil {
		return err
	}
	err := p.release()
	for _, e := range p.spare {
		err = errors.Join(err, e.Close())
	}
	p.spare = nil
	p.dev.removePool(p)
	if p.used != 0 {
		err = errors.Join(err, fmt.Errorf("cuda: pool %q is closed with %s in use", p.Name, size(p.used)))
	}
	return err
}

func (dev *Device) removePool(p *Pool) {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	dev.pools = slices.DeleteFunc(dev.pools, func(q *Pool) bool { return q == p })
}

// Held returns the bytes that the pool got from the driver, and how many of them
// are in use.
func (p *Pool) Held() (held, used int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held, p.used
}

// usage says what every pool holds.
func (dev *Device) usage() string {
	var parts []string
	for _, p := range dev.allPools() {
		held, used := p.Held()
		parts = append(parts, fmt.Sprintf("%s uses %s and caches %s", p.Name, size(used), size(held-used)))
	}
	if free, total, err := dev.MemInfo(); err == nil {
		parts = append(parts, fmt.Sprintf("%s of %s are free on device %d", size(free), size(total), dev.Index))
	}
	return strings.Join(parts, ", ")
}

// size writes a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
