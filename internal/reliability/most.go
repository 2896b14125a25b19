package reliability

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// RunMost runs a package's tests, of those that may run beside each other so many at once: more than there are cores, as most of them wait.
// TestMain calls it.
func RunMost(m *testing.M, atOnce int) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(atOnce)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
