package tcp

import (
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/faultnet"
)

// recordCiphers returns the two ends of a connection's records.
func recordCiphers(t *testing.T) (closing, opening *recordCipher) {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	server, client, err := encrypted(a, b, testSecret)
	require.NoError(t, err)
	var ends [2]*recordCipher
	for i, c := range []*tls.Conn{server, client} {
		ends[i], err = newRecordCipher(c)
		require.NoError(t, err)
	}
	return ends[0], ends[1]
}

// What comes out is what went in, also when the key changes; no key is used twice, and none is that of another connection.
func TestRecordCipher(t *testing.T) {
	from, to := recordCiphers(t)
	from.perKey, to.perKey = 3, 3
	rng := rand.New(rand.NewPCG(1, 2))
	plain := make([]byte, recordPlain)
	keys := map[string]bool{}
	for i := range 20 {
		plain := plain[:rng.IntN(i*i*160+2)]
		for k := range plain {
			plain[k] = byte(rng.Uint32())
		}
		sealed, err := from.seal(nil, plain)
		require.NoError(t, err)
		require.Len(t, sealed, len(plain)+recordTag)
		require.NoError(t, to.open(sealed[:len(plain)], sealed), "in place")
		require.Equal(t, plain, sealed[:len(plain)])
		require.Equal(t, from.nonce, to.nonce)
		keys[string(from.secret)] = true
	}
	assert.Len(t, keys, 7)
	other, _ := recordCiphers(t)
	assert.NotEqual(t, from.secret, other.secret)
	assert.NotEqual(t, from.iv, other.iv)
}

// A record that was changed, cut, repeated, left out or moved, or that comes from elsewhere, does not open, and nothing of it
// shows.
func TestRecordCipherRefuses(t *testing.T) {
	secret := bytes.Repeat([]byte("secret"), 50)
	for name, spoil := range map[string]func(from *recordCipher, sent [][]byte) [][]byte{
		"changed": func(_ *recordCipher, sent [][]byte) [][]byte { sent[0][7] ^= 1; return sent },
		"tag":     func(_ *recordCipher, sent [][]byte) [][]byte { sent[0][len(sent[0])-1] ^= 128; return sent },
		"cut":     func(_ *recordCipher, sent [][]byte) [][]byte { sent[0] = sent[0][:len(sent[0])-1]; return sent },
		"lost":    func(_ *recordCipher, sent [][]byte) [][]byte { return sent[1:] },
		"swapped": func(_ *recordCipher, sent [][]byte) [][]byte { return [][]byte{sent[1], sent[0]} },
		"repeated": func(_ *recordCipher, sent [][]byte) [][]byte {
			return [][]byte{sent[0], slices.Clone(sent[0])}
		},
		"from another connection": func(_ *recordCipher, sent [][]byte) [][]byte {
			other, _ := recordCiphers(t)
			b, err := other.seal(nil, secret)
			require.NoError(t, err)
			return [][]byte{b}
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := recordCiphers(t)
			var sent [][]byte
			for range 2 {
				b, err := from.seal(nil, secret)
				require.NoError(t, err)
				assert.NotContains(t, string(b), "secret")
				sent = append(sent, b)
			}
			var err error
			var got []byte
			for _, b := range spoil(from, sent) {
				got = make([]byte, len(b)-recordTag)
				if err = to.open(got, b); err != nil {
					break
				}
			}
			assert.ErrorIs(t, err, errDecrypt)
			assert.Equal(t, make([]byte, len(got)), got)
		})
	}
}

// What the peer sends right behind its last words over TLS is not lost, however it arrives.
func TestBehindTLS(t *testing.T) {
	a, b := faultnet.Pair(faultnet.Plan{}, faultnet.Plan{})
	server, client, err := encrypted(newTLSConn(a), newTLSConn(b), testSecret)
	require.NoError(t, err)
	_, err = client.Write([]byte("ready"))
	require.NoError(t, err)
	_, err = b.Write([]byte("frames"))
	require.NoError(t, err)
	said := make([]byte, 5)
	_, err = io.ReadFull(server, said)
	require.NoError(t, err)
	require.Equal(t, "ready", string(said))
	w, err := newDataWire(&link{}, server, true)
	require.NoError(t, err)
	said = make([]byte, 6)
	_, err = io.ReadFull(w.r, said)
	require.NoError(t, err)
	assert.Equal(t, "frames", string(said))
}
