package nvml

import "github.com/ringo-ml/ringo/internal/dl"

// Open opens the library at a path.
func Open(path string) (*Library, error) {
	return open(dl.Query{What: "NVML", Names: []string{path}})
}
