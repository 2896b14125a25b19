//go:build linux || darwin

package doctor

import (
	"math"

	"golang.org/x/sys/unix"
)

// limits reads the limits of the shell's ulimit.
func limits() []Limit {
	kinds := []struct {
		name, option string
		resource     int
	}{{"open files", "n", unix.RLIMIT_NOFILE}, {"locked memory", "l", unix.RLIMIT_MEMLOCK}, {"address space", "v", unix.RLIMIT_AS}}
	var out []Limit
	for _, k := range kinds {
		var r unix.Rlimit
		if unix.Getrlimit(k.resource, &r) != nil {
			continue
		}
		l := Limit{Name: k.name, Option: k.option, Value: int64(r.Cur)}
		if r.Cur > math.MaxInt64-1 {
			l.Value = -1
		}
		l.judge()
		out = append(out, l)
	}
	return out
}
