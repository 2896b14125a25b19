package kernel

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCRC32C(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	data := make([]byte, 3<<20+1000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	check := func(lo, hi int) {
		crc := rng.Uint32()
		require.Equal(t, crc32.Update(crc, castagnoli, data[lo:hi]), CRC32C(crc, data[lo:hi]), "bytes %d to %d", lo, hi)
	}
	for n := range 2 * crcFrom {
		check(n%67, n%67+n)
	}
	for range 200 {
		lo := rng.IntN(1000)
		check(lo, lo+rng.IntN(200_000))
	}
	check(0, len(data))
	check(3, 3<<20)
	require.Equal(t, uint32(0xe3069283), CRC32C(0, []byte("123456789"))) // RFC 3720, appendix B.4, has longer ones
	require.Equal(t, uint32(0x8a9136aa), CRC32C(0, make([]byte, 32)))
}

func BenchmarkCRC32C(b *testing.B) {
	p := make([]byte, 256<<10)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		CRC32C(0, p)
	}
}
