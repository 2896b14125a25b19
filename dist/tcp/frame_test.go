package tcp

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	mrand "math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"

	"github.com/ringo-ml/ringo/internal/reliability"
)

func TestHeaderRoundTrip(t *testing.T) {
	h := header{typ: frameData, kind: backend.AllToAllV, gen: 3, length: maxPayload, group: math.MaxUint64, seq: 7, tag: 9, nth: 8, part: 11,
		total: 1 << 40, print: 0xdeadbeef}
	b := make([]byte, headerBytes)
	h.put(b)
	var got header
	require.NoError(t, got.parse(b, 0))
	assert.Equal(t, h, got)
	for i := range b {
		b[i] ^= 1
		assert.Error(t, got.parse(b, 0), "byte %d changed", i)
		b[i] ^= 1
	}
}

func FuzzHeader(f *testing.F) {
	b := make([]byte, headerBytes)
	(&header{typ: frameData, total: 5, length: 5}).put(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append(b, make([]byte, headerBytes)...)[:headerBytes]
		for range 2 { // as it is, and with a checksum that fits
			var h header
			if err := h.parse(b, 0); err == nil {
				out := make([]byte, headerBytes)
				h.put(out)
				sign(b)
				require.True(t, bytes.Equal(b, out))
				require.LessOrEqual(t, h.length, uint64(maxPayload))
			}
			copy(b, "RNGO")
			b[4] = version
			sign(b)
		}
	})
}

func sign(b []byte) {
	sum := crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:headerBytes])
	binary.LittleEndian.PutUint32(b[12:], sum)
}

// hostile makes a job of two in which rank 1 is played by the test: it returns rank 0's engine and group, and the
// connection.
func hostile(t *testing.T, gen uint32) (*Engine, backend.Backend, *tls.Conn) {
	t.Helper()
	cs := configs(t, 2)
	cs[0].Gen, cs[0].Timeout = gen, 2*time.Second
	joined := joining(t, cs[0])
	conf, err := tlsConfig(testSecret, "test")
	require.NoError(t, err)
	c, _, err := dialOnce(t.Context(), conf, cs[0].Addr, hello{member: member{Rank: 1, Host: "evil", PID: 666}, Size: 2, Gen: gen})
	require.NoError(t, err)
	var table []member
	require.NoError(t, readJSON(c, frameTable, &table))
	assert.Len(t, table, 2)
	data := playData(t, conf, cs[0].Addr, c, hello{member: member{Rank: 1, Host: "evil", PID: 666}, Size: 2, Gen: gen})
	e := joined()
	t.Cleanup(func() {
		for _, d := range append(data, c) {
			d.NetConn().Close()
		}
		e.Close()
	})
	be, err := e.Open(backend.Spec{ID: 1, Name: "world", Ranks: []int{0, 1}})
	require.NoError(t, err)
	return e, be, c
}

// playData makes the data connections that belong to c.
func playData(t *testing.T, conf *tls.Config, addr string, c *tls.Conn, h hello) []*tls.Conn {
	t.Helper()
	var err error
	h.Token, err = newLink(newEngine(Config{}, member{}), member{}, c).token()
	require.NoError(t, err)
	var out []*tls.Conn
	for _, h.Data = range [...]int{dataIn, dataOut} {
		d, _, err := dialOnce(t.Context(), conf, addr, h)
		require.NoError(t, err)
		out = append(out, d)
	}
	return out
}

// Whatever a peer sends, the error names it, and nothing large is allocated.
func TestHostileFrames(t *testing.T) {
	frame := func(h header) []byte {
		b := make([]byte, headerBytes)
		h.put(b)
		return b
	}
	good := frame(header{typ: frameData, gen: 1, group: 1, seq: 1, length: 4, total: 4})
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"length 2^32-1": {frame(header{typ: frameData, gen: 1, group: 1, seq: 1, length: 1<<32 - 1, total: 1 << 63}),
			"4294967295 bytes, at most 262144"},
		"bad magic":      {edit(func(b []byte) { b[0] = 'H' }), `"HNGO"`},
		"bad version":    {edit(func(b []byte) { b[4] = 9 }), "version 9"},
		"bad checksum":   {edit(func(b []byte) { b[13]++ }), "checksum"},
		"old generation": {frame(header{typ: frameAlive}), "frame of generation 0, this is generation 1"},
		"unknown type":   {frame(header{typ: 99, gen: 1}), "unknown type 99"},
		"rendezvous":     {frame(header{typ: frameTable, gen: 1}), "rendezvous is over"},
		"not JSON":       {append(frame(header{typ: frameAbort, gen: 1, group: 1, length: 4}), "evil"...), "abort"},
		"free credit":    {frame(header{typ: frameCredit, gen: 1, group: 1, total: 1 << 20}), "credit for 1048576 bytes"},
		"HTTP":           {[]byte("GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: a port scanner, 64 bytes or more\r\n\r\n"), `"GET "`},
	} {
		t.Run(name, func(t *testing.T) {
			_, be, conn := hostile(t, 1)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := conn.Write(c.b)
			require.NoError(t, err)
			began := time.Now()
			err = do(be, &backend.Op{Kind: backend.Barrier, Seq: 1})
			runtime.ReadMemStats(&after)
			assert.ErrorContains(t, err, "rank 1 (host evil, pid 666)")
			assert.ErrorContains(t, err, c.want)
			reliability.Took(t, 28, "tcp", 50*time.Millisecond, time.Since(began))
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
		})
	}
}

// A peer cannot make this rank buffer more than its window, nor keep state for endless groups.
func TestHostileFlood(t *testing.T) {
	t.Parallel()
	send := func(t *testing.T, c net.Conn, h header) {
		h.gen = 1
		b := make([]byte, headerBytes+int(h.length))
		h.put(b)
		if _, err := c.Write(b); err != nil {
			t.Log("cut off:", err)
		}
	}
	t.Run("window", func(t *testing.T) {
		_, be, c := hostile(t, 1)
		for i := range 20 {
			send(t, c, header{typ: frameData, group: 1, seq: uint64(i + 2), length: maxPayload, total: maxPayload})
		}
		err := wait(t.Context(), be, 1)
		assert.ErrorContains(t, err, "more than its window")
	})
	t.Run("all groups", func(t *testing.T) {
		e, be, c := hostile(t, 1)
		sent := 0
		if !reliability.Long(t) { // all but 8 MiB
			sent = maxEarlyBytes - 8<<20
			e.links[1].early.Add(int64(sent))
		}
		for i := range (maxEarlyBytes-sent)/(4<<20) + 1 {
			for j := range 16 {
				send(t, c, header{typ: frameData, group: uint64(i + 2), seq: uint64(j + 1), length: maxPayload, total: maxPayload})
			}
		}
		err := wait(t.Context(), be, 1)
		assert.ErrorContains(t, err, "more than 128 MiB to groups that are not opened here")
	})
	t.Run("member", func(t *testing.T) {
		e, be, c := hostile(t, 1)
		_, err := e.Open(backend.Spec{ID: 2, Name: "alone", Ranks: []int{0}})
		require.NoError(t, err)
		send(t, c, header{typ: frameData, group: 2, seq: 1})
		err = wait(t.Context(), be, 1)
		assert.ErrorContains(t, err, "not a member")
	})
	t.Run("groups", func(t *testing.T) {
		_, be, c := hostile(t, 1)
		for i := range maxEarlyGroups + 2 {
			send(t, c, header{typ: frameData, group: uint64(i + 2), seq: 1})
		}
		err := wait(t.Context(), be, 1)
		assert.ErrorContains(t, err, "groups that are not opened here")
	})
}

func TestLongHostileFlood(t *testing.T) { reliability.AsLong(t, TestHostileFlood) }

// Whatever frames a member of the job makes up, the others end with an error that names it.
func TestHostileGarbage(t *testing.T) {
	t.Parallel()
	seeds := uint64(6)
	if reliability.Long(t) {
		seeds = 500
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := mrand.New(mrand.NewPCG(seed, 1))
			_, be, c := hostile(t, 1)
			began := time.Now()
			go func() {
				for range 50 {
					if _, err := c.Write(garbage(rng)); err != nil {
						break // is found out
					}
				}
				c.NetConn().Close()
			}()
			err := do(be, &backend.Op{Kind: backend.Barrier, Seq: 1})
			assert.ErrorContains(t, err, "rank 1 (host evil, pid 666)")
			assert.Less(t, time.Since(began), 2*time.Second+reliability.Slack, "the timeout and some")
		})
	}
}

func TestLongHostileGarbage(t *testing.T) { reliability.AsLong(t, TestHostileGarbage) }

// garbage is a frame with a right checksum and little sense.
func garbage(rng *mrand.Rand) []byte {
	some := func(v ...uint64) uint64 { return v[rng.IntN(len(v))] }
	h := header{typ: frameType(rng.IntN(int(numFrameTypes))), kind: backend.Kind(rng.IntN(int(backend.NumKinds))),
		gen: uint32(some(1, 1, 1, 2)), tag: uint8(some(0, 1, 255)), nth: uint32(some(0, 1, 1<<31)), part: uint32(some(0, 0, 1, 1<<31)),
		group: some(1, 1, 2, rng.Uint64()), seq: some(0, 1, 1, 2, 1<<63), length: some(0, 0, 1, 77, maxPayload),
		total: some(0, 1, 77, maxPayload, 1<<40), print: rng.Uint64()}
	b := make([]byte, headerBytes+h.length)
	h.put(b)
	for i := range b[headerBytes:] {
		b[headerBytes+i] = byte(some('{', '}', 'a', 0))
	}
	return b
}
