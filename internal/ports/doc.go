// Package ports finds ports on which nobody listens, for tests whose program must listen at an address that is known before.
package ports
