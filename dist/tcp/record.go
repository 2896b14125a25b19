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

// An encrypted data connection carries frames in records: one record for the header, and one for each recordPlain bytes of the
// payload. A record is AES-128-GCM with a nonce that counts the records, as in TLS 1.3. It is four times as long as a record of
// TLS, and is decrypted without a copy, into the buffer that the message is for. The key comes from the TLS session in which both
// ends have proved who they are (RFC 5705, RFC 8446 section 7.5), so no other connection has it. A connection carries frames in
// one direction only. A record that was changed, lost, repeated or moved does not decrypt.
const (
	recordPlain = 64 << 10 // of plain text
	recordTag   = 16       // the tag
	keyBytes    = 16
	nonceBytes  = 12
	// recordsPerKey limits what one key encrypts to 256 GiB, below the bound of RFC 8446 section 5.5 (2^24.5 records of 16 KiB).
	recordsPerKey = 1 << 22
)

// errDecrypt ends a connection.
var errDecrypt = errors.New("broke the protocol: bytes or frames were lost or changed: they do not decrypt")

// recordCipher closes or opens the records of one connection, in order.
type recordCipher struct {
	aead   cipher.AEAD
	secret []byte // of the next key
	iv     [nonceBytes]byte
	nonce  [nonceBytes]byte
	record uint64 // of the next record with this key
	perKey uint64
}

// newRecordCipher makes the cipher of a connection that has shaken hands.
func newRecordCipher(conn *tls.Conn) (*recordCipher, error) {
	state := conn.ConnectionState()
	secret, err := state.ExportKeyingMaterial("EXPORTER-ringo-frames", nil, sha256.Size)
	if err != nil {
		return nil, err
	}
	c := &recordCipher{secret: secret, perKey: recordsPerKey}
	return c, c.nextKey()
}

// nextKey goes on to the next key. Who learns it learns nothing about earlier ones.
func (c *recordCipher) nextKey() error {
	key, err := hkdf.Expand(sha256.New, c.secret, "ringo frames key", keyBytes+nonceBytes)
	if err != nil {
		return err
	}
	next, err := hkdf.Expand(sha256.New, c.secret, "ringo frames next", sha256.Size)
	if err != nil {
		return err
	}
	block, err := aes.NewCipher(key[:keyBytes])
	if err != nil {
		return err
	}
	if c.aead, err = cipher.NewGCM(block); err != nil {
		return err
	}
	c.secret, c.record = next, 0
	copy(c.iv[:], key[keyBytes:])
	return nil
}

// nextNonce makes the nonce of the next record.
func (c *recordCipher) nextNonce() error {
	if c.record == c.perKey {
		if err := c.nextKey(); err != nil {
			return err
		}
	}
	c.nonce = c.iv
	at := c.nonce[nonceBytes-8:]
	binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)^c.record)
	c.record++
	return nil
}

// seal appends the record of plain to dst.
func (c *recordCipher) seal(dst, plain []byte) ([]byte, error) {
	if err := c.nextNonce(); err != nil {
		return nil, err
	}
	return c.aead.Seal(dst, c.nonce[:], plain, nil), nil
}

// open puts what is in the next record to dst, which has its length and may be the place of the record itself. After an error
// dst holds nothing of it.
func (c *recordCipher) open(dst, sealed []byte) error {
	if err := c.nextNonce(); err != nil {
		return err
	}
	if _, err := c.aead.Open(dst[:0], c.nonce[:], sealed, nil); err != nil {
		return errDecrypt
	}
	return nil
}
