//go:build nodl || !linux

package dl

// AtExit does nothing: the loader does not tell what the library has registered.
func (l *Lib) AtExit() {}
