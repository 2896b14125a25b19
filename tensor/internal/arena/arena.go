package arena

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// Step memory is given out in blocks. Up to 1 MiB a block is cut from a slab; there are 16 size classes between a size and its double.
// Larger blocks are whole pages.
const (
	MinBlock    = 64
	LargestSlab = 4 << 20
	largeBlock  = 1 << 20
	firstSlab   = 256 << 10 // slabs double up to the largest
	pageBytes   = 4096
	numClasses  = 16 * 16
)

// Ptr is an address in the memory of a device.
type Ptr = unsafe.Pointer

// Source gives an arena its slabs: a device, or other memory of it.
type Source interface {
	Alloc(n int) (Ptr, error)
	Free(p Ptr)
}

// Arena gives out blocks of a device's memory, and reuses what is freed. Until all users are gone, only idle large blocks and idle slabs go
// back to the device: see trim.
type Arena struct {
	From  Source
	Count *memory.Counter   // of the device
	Spoil func(block Block) // if not nil, it is called for blocks before their first use, and when they are freed
	Fixed func() bool       // reports whether idle memory must stay where it is; nil: never

	known      int // the bytes that Count has of this arena
	free       [numClasses][]Ptr
	large      []Block // sorted by bytes
	slabs      []Block
	held       int // bytes of slabs
	slab       Ptr
	left       int
	live, high int // high: the most since the last report
	peak       int // before it
	users      int
}

// Block is a piece of memory.
type Block struct {
	P     Ptr
	Bytes int
}

// classOf returns the size class of n bytes and the bytes of its blocks, a multiple of 64.
func classOf(n int) (class, bytes int) {
	if n <= MinBlock {
		return 0, MinBlock
	}
	e := bits.Len(uint(n-1)) - 1 // 2^e < n <= 2^(e+1)
	step := max(1<<e/16, MinBlock)
	k := (n - 1<<e + step - 1) / step
	return 1 + (e-6)*16 + k - 1, 1<<e + k*step
}

// bytesOf returns the bytes of a block of a class: see classOf.
func bytesOf(class int) int {
	if class == 0 {
		return MinBlock
	}
	e, k := 6+(class-1)/16, (class-1)%16+1
	return 1<<e + k*max(1<<e/16, MinBlock)
}

// BlockBytes returns the bytes of a block for n bytes. It may be larger when a larger one is reused.
func BlockBytes(n int) int {
	if n > largeBlock {
		return wholePages(n)
	}
	_, bytes := classOf(n)
	return bytes
}

func wholePages(n int) int { return (n + pageBytes - 1) &^ (pageBytes - 1) }

// Alloc returns a block of at least n bytes. With an error of the source, the block has the bytes that the source was asked for.
func (a *Arena) Alloc(n int) (b Block, err error) {
	if b, err = a.take(n); a.Spoil != nil && err == nil {
		a.Spoil(b)
	}
	return b, err
}

func (a *Arena) take(n int) (Block, error) {
	if n > largeBlock {
		return a.takeLarge(wholePages(n))
	}
	c, bytes := classOf(n)
	if len(a.free[c]) == 0 && a.left < bytes && a.held-a.live > max(a.peak, a.high) {
		c, bytes = a.larger(c, bytes)
	}
	a.account(bytes)
	if k := len(a.free[c]); k > 0 {
		p := a.free[c][k-1]
		a.free[c] = a.free[c][:k-1]
		return Block{p, bytes}, nil
	}
	if a.left < bytes {
		a.freeRest()
		n := max(bytes, min(firstSlab<<min(len(a.slabs), 8), LargestSlab))
		a.trim(n)
		b, err := a.fromSource(n, bytes)
		if err != nil {
			return b, err
		}
		a.slab, a.left = b.P, n
	}
	p := a.slab
	a.slab, a.left = unsafe.Add(p, bytes), a.left-bytes
	return Block{p, bytes}, nil
}

// Has reports whether n bytes can be given without new memory of the source.
func (a *Arena) Has(n int) bool {
	if n > largeBlock {
		return a.fit(wholePages(n)) >= 0
	}
	c, bytes := classOf(n)
	return len(a.free[c]) > 0 || a.left >= bytes
}

// fit returns the index of the smallest free large block that holds so many bytes and wastes at most an eighth; -1 if there is none.
func (a *Arena) fit(bytes int) int {
	i, _ := slices.BinarySearchFunc(a.large, bytes, func(b Block, n int) int { return b.Bytes - n })
	if i < len(a.large) && a.large[i].Bytes <= bytes+bytes/8 {
		return i
	}
	return -1
}

// takeLarge takes a free block that fits, or memory of the source.
func (a *Arena) takeLarge(bytes int) (Block, error) {
	if i := a.fit(bytes); i >= 0 {
		b := a.large[i]
		a.large = slices.Delete(a.large, i, i+1)
		a.account(b.Bytes)
		return b, nil
	}
	a.account(bytes)
	a.trim(bytes)
	return a.fromSource(bytes, bytes)
}

func (a *Arena) account(bytes int) {
	a.live += bytes
	a.high = max(a.high, a.live)
}

// Report updates the device's count. It is not called for each block: that would cost as much as the rest of the work for the block.
func (a *Arena) Report() {
	a.Count.Add(memory.Activations, a.high-a.known)
	a.Count.Add(memory.Activations, a.live-a.high)
	a.peak = max(a.peak, a.high)
	a.high, a.known = a.live, a.live
}

// fromSource returns n new bytes. a.live already has counted of them, and gives them up if there is no memory.
func (a *Arena) fromSource(n, counted int) (Block, error) {
	p, err := a.From.Alloc(n)
	if err != nil && a.giveBack(0) {
		p, err = a.From.Alloc(n)
	}
	b := Block{p, n}
	if err != nil {
		a.live -= counted
		a.Report()
		return b, err
	}
	a.slabs = append(a.slabs, b)
	a.hold(n)
	a.Report()
	return b, nil
}

// hold counts bytes that came from the source, or went back.
func (a *Arena) hold(n int) {
	a.held += n
	a.Count.AddHeld(n)
}

// Free takes a block back.
func (a *Arena) Free(b Block) {
	a.live -= b.Bytes
	if a.Spoil != nil {
		a.Spoil(b)
	}
	if b.Bytes > largeBlock {
		i, _ := slices.BinarySearchFunc(a.large, b.Bytes, func(x Block, n int) int { return x.Bytes - n })
		a.large = slices.Insert(a.large, i, b)
		return
	}
	c, _ := classOf(b.Bytes)
	a.free[c] = append(a.free[c], b.P)
}

// Live returns the bytes in use now, and the most so far.
func (a *Arena) Live() (live, peak int) { return a.live, max(a.peak, a.high) }

// Held returns the bytes that the arena has from its source: those in use, and idle ones.
func (a *Arena) Held() int { return a.held }

// Open counts a user of the arena.
func (a *Arena) Open() { a.users++ }

// Shared reports whether the arena has a user.
func (a *Arena) Shared() bool { return a.users > 0 }

// Close ends the use of one user. The last one gives all memory back.
func (a *Arena) Close() {
	if a.users--; a.users > 0 {
		return
	}
	for _, b := range a.slabs {
		a.From.Free(b.P)
	}
	a.Count.AddHeld(-a.held)
	a.Count.Add(memory.Activations, -a.known)
	*a = Arena{From: a.From, Count: a.Count, Spoil: a.Spoil, Fixed: a.Fixed}
}
