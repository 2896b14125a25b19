package tcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
)

// The frames of an encrypted data connection are boxed: the header is one box, the payload one for each boxBytes. A box is
// AES-128-GCM with a nonce that counts the boxes, as in a record of TLS 1.3, but four times as long and without a copy: it is
// opened into the buffer that the message is for. The key comes from the TLS session in which both ends have shown who they
// are (RFC 5705, RFC 8446 section 7.5), so it is known to nobody else and to no other connection; and a connection carries
// frames in one direction only. A box that was changed, lost, repeated or moved does not open.
const (
	boxBytes    = 64 << 10 // of plain text
	boxOverhead = 16       // the tag
	keyBytes    = 16
	nonceBytes  = 12
	// boxesPerKey limits what one key encrypts to 256 GiB, below the bound of RFC 8446 section 5.5 (2^24.5 records of 16 KiB).
	boxesPerKey = 1 << 22
)

// errBox ends a connection.
var errBox = errors.New("broke the protocol: bytes or frames were lost or changed: they do not decrypt")

// box closes or opens the boxes of one connection, in order.
type box struct {
	aead   cipher.AEAD
	secret []byte // of the next key
	iv     [nonceBytes]byte
	nonce  [nonceBytes]byte
	number uint64 // of the next box with this key
	perKey uint64
}

// newBox makes the box of a connection that has shaken hands.
func newBox(c *tls.Conn) (*box, error) {
	state := c.ConnectionState()
	secret, err := state.ExportKeyingMaterial("EXPORTER-ringo-frames", nil, sha256.Size)
	if err != nil {
		return nil, err
	}
	b := &box{secret: secret, perKey: boxesPerKey}
	return b, b.turn()
}

// turn goes on to the next key. Who learns it learns nothing about earlier ones.
func (b *box) turn() error {
	key, err := hkdf.Expand(sha256.New, b.secret, "ringo frames key", keyBytes+nonceBytes)
	if err != nil {
		return err
	}
	next, err := hkdf.Expand(sha256.New, b.secret, "ringo frames next", sha256.Size)
	if err != nil {
		return err
	}
	block, err := aes.NewCipher(key[:keyBytes])
	if err != nil {
		return err
	}
	if b.aead, err = cipher.NewGCM(block); err != nil {
		return err
	}
	b.secret, b.number = next, 0
	copy(b.iv[:], key[keyBytes:])
	return nil
}

// step makes the nonce of the next box.
func (b *box) step() error {
	if b.number == b.perKey {
		if err := b.turn(); err != nil {
			return err
		}
	}
	b.nonce = b.iv
	at := b.nonce[nonceBytes-8:]
	binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)^b.number)
	b.number++
	return nil
}

// seal appends the box of plain to dst.
func (b *box) seal(dst, plain []byte) ([]byte, error) {
	if err := b.step(); err != nil {
		return nil, err
	}
	return b.aead.Seal(dst, b.nonce[:], plain, nil), nil
}

// open puts what is in the next box to dst, which has its length and may be the place of the box itself. After an error
// dst holds nothing of it.
func (b *box) open(dst, boxed []byte) error {
	if err := b.step(); err != nil {
		return err
	}
	if _, err := b.aead.Open(dst[:0], b.nonce[:], boxed, nil); err != nil {
		return errBox
	}
	return nil
}
