//go:build unix && !race

package cpu

import "golang.org/x/sys/unix"

// mapMemory returns pages from the operating system, which the garbage collector does not scan.
func mapMemory(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, max(n, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func unmapMemory(b []byte) { _ = unix.Munmap(b) }

// mappable returns an error if the system would not give n bytes.
func mappable(n int) error {
	b, err := mapMemory(n)
	if err == nil {
		unmapMemory(b)
	}
	return err
}
