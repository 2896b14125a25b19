package reliability

import (
	"runtime/metrics"
	"testing"
)

// Bounded runs a reader of a file of so many bytes. It fails t if the reader allocates more than 16 bytes for each of them,
// and 64 MiB beside (internal/bounded). What was freed counts, too, so the result does not depend on the garbage collector.
// Nothing else may run. With the race detector, it only runs the reader.
func Bounded(t testing.TB, file int, read func()) {
	t.Helper()
	const noise = 1 << 20
	before := allocated()
	read()
	if got := allocated() - before; !Racing && got > 64<<20+16*uint64(file)+noise {
		t.Errorf("reading a file of %d bytes allocates %d", file, got)
	}
}

// allocated returns how many bytes this process has ever allocated.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
