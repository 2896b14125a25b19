package reliability

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Seeds are those of the random cases of a test. Several goroutines may use it.
type Seeds struct {
	next  atomic.Uint64
	first uint64
	one   bool
	end   time.Time
}

// Random returns the seeds from 1 on, for two seconds. Variables change this: RINGO_FIRST_SEED the first one, RINGO_RANDOM_TIME the time,
// and with RINGO_SEED it is only this one. So which seeds a test has depends on time, but never what it does with one of them.
func Random(t testing.TB) *Seeds {
	t.Helper()
	s := &Seeds{first: 1}
	took := 2 * time.Second
	read := func(name string, parse func(text string) error) bool {
		text := os.Getenv(name)
		if text == "" {
			return false
		}
		if err := parse(text); err != nil {
			t.Fatalf("%s=%q: %v", name, text, err)
		}
		return true
	}
	number := func(text string) (err error) {
		s.first, err = strconv.ParseUint(text, 10, 64)
		return err
	}
	read("RINGO_FIRST_SEED", number)
	read("RINGO_RANDOM_TIME", func(text string) (err error) {
		took, err = time.ParseDuration(text)
		return err
	})
	s.one = read("RINGO_SEED", number)
	s.next.Store(s.first)
	s.end = time.Now().Add(took)
	return s
}

// Next returns another seed, and false when there are no more. There is always a first one.
func (s *Seeds) Next() (seed uint64, ok bool) {
	seed = s.next.Add(1) - 1
	return seed, seed == s.first || !s.one && time.Now().Before(s.end)
}

// One reports whether there is one seed, which a test should tell all about.
func (s *Seeds) One() bool { return s.one }
