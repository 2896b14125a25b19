package cuda

import "github.com/ringo-ml/ringo/internal/dl"

var (
	OpenDriver   = open
	BlockSize    = blockSize
	Joined       = nvlinks
	Asynchronous = asynchronous
)

// DriverAt is the query for a driver at one path.
func DriverAt(path string) dl.Query {
	q := LibDriver.Query(0)
	q.Env, q.Names = "", []string{path}
	return q
}

// CachePath is the file in which CompileCached keeps the code.
func (c *Compiler) CachePath(src Source, arch string) string {
	return CacheDir() + "/" + c.cacheName(src, arch, nil)
}
