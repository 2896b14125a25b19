package tensor

import (
	"math/bits"
	"slices"
	"unsafe"
)

// Step memory is given out in blocks. Up to 1 MiB a block is cut from a slab; there are 16 size classes between a size and its double.
// Larger blocks are whole pages.
const (
	minBlock    = 64
	largeBlock  = 1 << 20
	firstSlab   = 256 << 10 // slabs double up to the largest
	largestSlab = 4 << 20
	pageBytes   = 4096
	numClasses  = 16 * 16
)

// arena gives out the step memory of a tape, and reuses what is freed. Before close, only idle large blocks and idle slabs go back to the
// device: see trim.
type arena struct {
	dev        Device
	from       StepMemory // dev, or the memory of MemoryFrom
	use        *Memory    // of dev
	known      int        // the bytes that use counts for this arena
	free       [numClasses][]Ptr
	large      []block // sorted by bytes
	slabs      []block
	held       int // bytes of slabs
	slab       Ptr
	left       int
	live, high int // high: the most since the last report
	peak       int // before it
	poison     bool
	tapes      int // open tapes that share it
}

type block struct {
	p     Ptr
	bytes int
}

// classOf returns the size class of n bytes and the bytes of its blocks, a multiple of 64.
func classOf(n int) (class, bytes int) {
	if n <= minBlock {
		return 0, minBlock
	}
	e := bits.Len(uint(n-1)) - 1 // 2^e < n <= 2^(e+1)
	step := max(1<<e/16, minBlock)
	k := (n - 1<<e + step - 1) / step
	return 1 + (e-6)*16 + k - 1, 1<<e + k*step
}

// StepBytes returns the bytes that a tape counts for a tensor of n bytes: those of its block. It may count more when it reuses a larger
// block.
func StepBytes(n int) int {
	if n > largeBlock {
		return wholePages(n)
	}
	_, bytes := classOf(n)
	return bytes
}

func wholePages(n int) int { return (n + pageBytes - 1) &^ (pageBytes - 1) }

// alloc gives h a block of at least n bytes.
func (m *arena) alloc(h *header, n int) block {
	b := m.take(h, n)
	if m.poison {
		m.spoil(b)
	}
	return b
}

func (m *arena) take(h *header, n int) block {
	if n > largeBlock {
		return m.allocLarge(h, wholePages(n))
	}
	c, bytes := classOf(n)
	if len(m.free[c]) == 0 && m.left < bytes && m.held-m.live > max(m.peak, m.high) {
		c, bytes = m.larger(c, bytes)
	}
	m.account(bytes)
	if k := len(m.free[c]); k > 0 {
		p := m.free[c][k-1]
		m.free[c] = m.free[c][:k-1]
		return block{p, bytes}
	}
	if m.left < bytes {
		m.freeRest()
		n := max(bytes, min(firstSlab<<min(len(m.slabs), 8), largestSlab))
		m.trim(n)
		m.slab, m.left = m.fromDevice(h, n, bytes), n
	}
	p := m.slab
	m.slab, m.left = unsafe.Add(p, bytes), m.left-bytes
	return block{p, bytes}
}

// has reports whether n bytes can be given without new memory of the device.
func (m *arena) has(n int) bool {
	if n > largeBlock {
		return m.fit(wholePages(n)) >= 0
	}
	c, bytes := classOf(n)
	return len(m.free[c]) > 0 || m.left >= bytes
}

// fit returns the index of the smallest free large block that holds so many bytes and wastes at most an eighth; -1 if there is none.
func (m *arena) fit(bytes int) int {
	i, _ := slices.BinarySearchFunc(m.large, bytes, func(b block, n int) int { return b.bytes - n })
	if i < len(m.large) && m.large[i].bytes <= bytes+bytes/8 {
		return i
	}
	return -1
}

// allocLarge takes a free block that fits, or memory of the device.
func (m *arena) allocLarge(h *header, bytes int) block {
	if i := m.fit(bytes); i >= 0 {
		b := m.large[i]
		m.large = slices.Delete(m.large, i, i+1)
		m.account(b.bytes)
		return b
	}
	m.account(bytes)
	m.trim(bytes)
	return block{m.fromDevice(h, bytes, bytes), bytes}
}

func (m *arena) account(bytes int) {
	m.live += bytes
	m.high = max(m.high, m.live)
}

// report updates the device's count. It is not called for each block: that would cost as much as the rest of the work for the block.
func (m *arena) report() {
	m.use.Add(Activations, m.high-m.known)
	m.use.sub(Activations, m.high-m.live)
	m.peak = max(m.peak, m.high)
	m.high, m.known = m.live, m.live
}

// fromDevice returns n new bytes of the device, for h. m.live already has counted of them, and gives them up if there is no memory.
func (m *arena) fromDevice(h *header, n, counted int) Ptr {
	p, err := m.from.Alloc(n)
	if err != nil && m.giveBack(0) {
		p, err = m.from.Alloc(n)
	}
	if err != nil {
		m.live -= counted
		m.report()
		noMemory(m.dev, Activations, h, n, err)
	}
	m.slabs = append(m.slabs, block{p, n})
	m.held += n
	m.use.held.add(n)
	m.report()
	return p
}

func (m *arena) release(b block) {
	m.live -= b.bytes
	if m.poison {
		m.spoil(b)
	}
	if b.bytes > largeBlock {
		i, _ := slices.BinarySearchFunc(m.large, b.bytes, func(x block, n int) int { return x.bytes - n })
		m.large = slices.Insert(m.large, i, b)
		return
	}
	c, _ := classOf(b.bytes)
	m.free[c] = append(m.free[c], b.p)
}

// spoil fills a block with NaN, in debug mode: before its first use, and when it is freed.
func (m *arena) spoil(b block) { spoil(m.dev, b.p, b.bytes) }

// close gives all memory back to the device.
func (m *arena) close() {
	for _, b := range m.slabs {
		m.from.Free(b.p)
	}
	m.use.held.add(-m.held)
	m.use.sub(Activations, m.known)
	*m = arena{dev: m.dev, from: m.from, use: m.use, poison: m.poison, tapes: m.tapes}
}
