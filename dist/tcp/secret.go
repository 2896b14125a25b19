package tcp

import (
	"crypto/tls"

	"github.com/ringo-ml/ringo/internal/identity"
)

// SecretBytes is the length of a job secret. Shorter ones can be guessed and are refused.
const SecretBytes = identity.SecretBytes

// protocol is the TLS application protocol; it changes with the wire format.
const protocol = "ringo/4"

// NewSecret returns a new random job secret as 64 hexadecimal digits.
func NewSecret() string { return identity.NewSecret() }

// ParseSecret decodes a job secret as NewSecret writes it.
func ParseSecret(digits string) ([]byte, error) { return identity.ParseSecret(digits) }

// tlsConfig returns the TLS settings of every rank of a job, for both ends of a connection.
func tlsConfig(secret []byte, job string) (*tls.Config, error) {
	return identity.TLS(secret, job, protocol)
}
