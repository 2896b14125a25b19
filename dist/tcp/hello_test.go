package tcp

import (
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A data connection belongs to a link by the token that only the two ends of its control connection know: another rank of the
// job cannot put its own in.
func TestDataConnectionNeedsToken(t *testing.T) {
	t.Parallel()
	cs := configs(t, 2)
	conf, err := tlsConfig(testSecret, "test")
	require.NoError(t, err)
	joined := joining(t, cs[0])
	me := hello{member: member{Rank: 1, Host: "h1"}, Size: 2}
	c, _, err := dialOnce(t.Context(), conf, cs[0].Addr, me)
	require.NoError(t, err)
	var table []member
	require.NoError(t, readJSON(c, frameTable, &table))
	dialData := func(rank, data int, token string) error {
		h := me
		h.Rank, h.Data, h.Token = rank, data, token
		d, _, err := dialOnce(t.Context(), conf, cs[0].Addr, h)
		if err == nil {
			d.NetConn().Close()
		}
		return err
	}
	token, err := newLink(newEngine(Config{}, member{}), member{}, c).token()
	require.NoError(t, err)
	const belongs = "does not belong to the one that is there"
	assert.ErrorContains(t, dialData(1, 1, ""), belongs)
	assert.ErrorContains(t, dialData(1, 1, token[:len(token)-1]+"x"), belongs)
	for _, h := range [][2]int{{0, 1}, {-1, 1}, {2, 1}, {1, dataOut + 1}} {
		assert.ErrorContains(t, dialData(h[0], h[1], token), "expects no data connection", "%v", h)
	}
	data := playData(t, conf, cs[0].Addr, c, me)
	e := joined()
	for _, d := range append(data, c) {
		d.NetConn().Close()
	}
	require.NoError(t, e.Close())
}

// A rank expects connections of the mesh from higher ranks of its own job and generation, one from each.
func TestMeshHello(t *testing.T) {
	for name, change := range map[string]func(h *hello){
		"no mesh":          func(h *hello) { h.Mesh = false },
		"older generation": func(h *hello) { h.Gen = 2 },
		"newer generation": func(h *hello) { h.Gen = 4 },
		"another size":     func(h *hello) { h.Size = 6 },
		"a lower rank":     func(h *hello) { h.Rank = 1 },
		"itself":           func(h *hello) { h.Rank = 2 },
		"no such rank":     func(h *hello) { h.Rank = 5 },
		"a second time":    func(h *hello) { h.Rank = 4 },
	} {
		e := newEngine(Config{Rank: 2, Size: 5, Gen: 3}, member{Rank: 2})
		e.links[4] = newLink(e, member{Rank: 4}, nil)
		m := &rendezvous{e: e, changed: make(chan struct{}, 1)}
		h := hello{member: member{Rank: 3}, Size: 5, Gen: 3, Mesh: true}
		change(&h)
		before := append([]*link(nil), e.links...)
		assert.ErrorContains(t, answerTo(m, h), "expects no connection from rank", name)
		assert.Equal(t, before, e.links, name)
	}
}

// answerTo returns the answer to a hello that is refused before the connection is looked at.
func answerTo(m *rendezvous, h hello) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("was let in: %v", p)
		}
	}()
	return m.acceptMesh(h, nil)
}

// On a connection without TLS a frame that was lost, came twice or in the wrong place is noticed by its number.
func TestFramesAreNumbered(t *testing.T) {
	for name, order := range map[string][]int{"": {0, 1, 2}, "lost": {0, 2}, "twice": {0, 1, 1}, "swapped": {1, 0, 2}, "first one lost": {1}} {
		synctest.Test(t, func(t *testing.T) {
			there, here := net.Pipe()
			e := newEngine(Config{Size: 2}, member{})
			out, in := newLink(e, member{Rank: 1}, there).main, newLink(e, member{Rank: 1}, here).main
			frames := make([][]byte, 3)
			for i := range frames {
				frames[i] = written(t, out, here, &header{typ: frameData, seq: uint64(i), length: 4, total: 4}, []byte("data"))
			}
			go func() {
				for _, i := range order {
					_, _ = there.Write(frames[i])
				}
				there.Close()
			}()
			var err error
			for range order {
				var h header
				if err = in.header(&h); err != nil {
					break
				}
				_, err = in.payload(&h)
				require.NoError(t, err)
			}
			if name == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, "bytes or frames were lost or changed", name)
			}
			here.Close()
		})
	}
}

// written returns what w writes to its connection, whose other end is conn.
func written(t *testing.T, w *wire, conn net.Conn, h *header, payload []byte) []byte {
	done := make(chan error, 1)
	go func() { done <- w.write(h, payload) }()
	b := make([]byte, headerBytes+len(payload))
	_, err := io.ReadFull(conn, b)
	require.NoError(t, err)
	require.NoError(t, <-done)
	return b
}
