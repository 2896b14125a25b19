package memory

import "sync/atomic"

// Account counts a piece of memory, in parts of several uses, until Close.
type Account struct {
	counter *Counter
	bytes   [numUses]atomic.Int64
}

// NewAccount returns an account without bytes.
func NewAccount(c *Counter) *Account { return &Account{counter: c} }

// Add counts bytes of the piece for a use.
func (a *Account) Add(u Use, bytes int) {
	a.bytes[u].Add(int64(bytes))
	a.counter.Add(u, bytes)
}

// Close stops the counting. It may be called again, by any goroutine.
func (a *Account) Close() {
	for u := range a.bytes {
		if n := a.bytes[u].Swap(0); n != 0 {
			a.counter.Add(Use(u), -int(n))
		}
	}
}

// Recount counts the whole piece for one use.
func (a *Account) Recount(u Use) {
	n := int64(0)
	for i := range a.bytes {
		n += a.bytes[i].Load()
	}
	if a.bytes[u].Load() != n {
		a.Close()
		a.Add(u, int(n))
	}
}
