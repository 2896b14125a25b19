package backend

// Virtual is a Transport in virtual time, for ranks that are simulated. Its messages have a length and no content. Over it, an algorithm
// neither reads nor writes memory: it says how long that would take. All threads of all ranks run one at a time, and each may run ahead of
// the others: calls return before the time in which they would, so what a thread does must not depend on what others have done.
type Virtual interface {
	Transport
	// Memory returns n bytes that nobody reads or writes. All calls may return the same ones.
	Memory(n int) []byte
	// Work takes the time of copying n bytes, or of adding n bytes to others.
	Work(n int)
	// Fork runs f as a further thread of this rank, and join waits for its end. An error of f ends the simulation.
	Fork(f func() error) (join func() error)
	// Post lets one call of Await of this rank return, a later one or one that waits now.
	Post()
	// Await returns false if the simulation has ended.
	Await() bool
}
