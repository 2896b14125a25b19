package identity

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// SecretBytes is the length of a job secret. A shorter one could be guessed and is refused.
const SecretBytes = 32

// ErrSecret means that the other side of a connection is not a member of the job.
var ErrSecret = errors.New("peer does not hold this job's secret (does RINGO_JOB_SECRET differ?)")

// ErrVersion means that the other side of a connection speaks another protocol.
var ErrVersion = errors.New("peer speaks another protocol (do the versions of Ringo differ?)")

// The TLS alerts with which a peer reports what is ErrSecret and ErrVersion here (RFC 8446, section 6.2).
const (
	alertBadCertificate        tls.AlertError = 42
	alertNoApplicationProtocol tls.AlertError = 120
)

// Explain turns an alert from the peer into ErrSecret or ErrVersion, if it means one of these. The alert is an error of a handshake or of
// the first read after it. Other errors are returned unchanged.
func Explain(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return err
	}
	switch op.Err.Error() { // package tls gives only the text of an alert
	case alertBadCertificate.Error():
		return fmt.Errorf("refused: %w", ErrSecret)
	case alertNoApplicationProtocol.Error():
		return fmt.Errorf("refused: %w", ErrVersion)
	}
	return err
}

// Refused reports whether err, as Explain returned it, will happen again at the next try.
func Refused(err error) bool { return errors.Is(err, ErrSecret) || errors.Is(err, ErrVersion) }

// NewSecret returns a new random job secret as 64 hexadecimal digits.
func NewSecret() string {
	b := make([]byte, SecretBytes)
	rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}

// ParseSecret decodes a job secret as NewSecret writes it.
func ParseSecret(digits string) ([]byte, error) {
	b, err := hex.DecodeString(digits)
	if err != nil {
		if n := len(digits); n == SecretBytes || n == 2*SecretBytes { // 32 characters are not 32 random bytes
			return nil, errors.New("job secret is not hexadecimal")
		}
		b = []byte(digits)
	}
	if len(b) != SecretBytes {
		return nil, secretLength(len(b))
	}
	return b, nil
}

func secretLength(n int) error {
	return fmt.Errorf("job secret has %d bytes, need %d: RINGO_JOB_SECRET is %d hexadecimal digits, the same on all ranks",
		n, SecretBytes, 2*SecretBytes)
}

// TLS returns the settings of every member of a job, for both sides of a connection. All members have the same ed25519 key, which is
// derived from the secret (SecretBytes long) and the job's name. TLS 1.3 makes each side prove that it has the key, and VerifyConnection
// compares it. No other peer receives or sends data. protocol is the name of the protocol inside; both sides must have the same.
func TLS(secret []byte, job, protocol string) (*tls.Config, error) {
	if len(secret) != SecretBytes {
		return nil, secretLength(len(secret))
	}
	seed, err := hkdf.Key(sha256.New, secret, []byte(job), "ringo/v1 tls identity", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	pub := key.Public().(ed25519.PublicKey)
	// The certificate only carries the key. Nobody checks its dates.
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<34, 0)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, pub, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // chains and names mean nothing here: VerifyConnection compares the key itself
		SessionTicketsDisabled: true,
		NextProtos:             []string{protocol},
		// Small first records help browsers; here they are only more records.
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return ErrSecret
			}
			p, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !p.Equal(pub) {
				return ErrSecret
			}
			if cs.NegotiatedProtocol != protocol {
				return ErrVersion
			}
			return nil
		},
	}, nil
}
