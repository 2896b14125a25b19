package shm

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	pageBytes = 4096

	control = 0 // number of the segment that holds what ranks tell each other
	heap    = 1 // number of the segment that holds buffers

	seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
)

// segment is memory that one rank owns and others map too.
type segment struct {
	owner  int // world rank
	number int
	b      []byte
}

// createSegment makes a segment of this rank. The descriptor is for peers.
func createSegment(rank, number int, bytes int64) (*segment, *os.File, error) {
	name := fmt.Sprintf("ringo rank %d segment %d", rank, number)
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("shm: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = unix.Ftruncate(fd, bytes)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("shm: segment %d: %w", number, err)
	}
	s, err := mapSegment(fd, rank, number)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return s, f, nil
}

// mapSegment maps a segment of rank owner, if it is what it must be. The caller closes fd.
func mapSegment(fd, owner, number int) (*segment, error) {
	s := &segment{owner: owner, number: number}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, s.errorf("no memfd: %w", err)
	}
	if got&seals != seals {
		return nil, s.errorf("not sealed: it could shrink")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, s.errorf("%w", err)
	}
	if least, most := leastBytes[number], mostBytes[number]; st.Size < least || st.Size > most || st.Size%pageBytes != 0 {
		return nil, s.errorf("has %d bytes, want pages, %d to %d", st.Size, least, most)
	}
	s.b, err = unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, s.errorf("mmap: %w", err)
	}
	return s, nil
}

func (s *segment) errorf(format string, a ...any) error {
	return fmt.Errorf("shm: segment %d of rank %d: %w", s.number, s.owner, fmt.Errorf(format, a...))
}

// unmap gives the mapping back.
func (s *segment) unmap() {
	if s != nil && s.b != nil {
		_ = unix.Munmap(s.b) // the kernel refuses only what was never mapped
		s.b = nil
	}
}

// at returns the address of offset off, which the caller has checked.
func (s *segment) at(off int) unsafe.Pointer { return unsafe.Pointer(&s.b[off]) }

// offset returns where memory lies in the segment; false: not, or not wholly, inside.
func (s *segment) offset(p unsafe.Pointer, n int) (int, bool) {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(s.b)))
	off := uintptr(p) - base
	if uintptr(p) < base || off > uintptr(len(s.b)) || uintptr(len(s.b))-off < uintptr(n) {
		return 0, false
	}
	return int(off), true
}

// populate makes the pages of a range real, so that the first use does not fault them in one by one.
func (s *segment) populate(off, n int) {
	lo := off &^ (pageBytes - 1)
	hi := min((off+n+pageBytes-1)&^(pageBytes-1), len(s.b))
	_ = unix.Madvise(s.b[lo:hi], unix.MADV_POPULATE_WRITE) // before Linux 5.14 the first use does it
}
