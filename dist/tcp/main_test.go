package tcp

import (
	"flag"
	"os"
	"testing"
)

// TestMain runs more tests at once than there are cores: most of them wait for timeouts.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("6"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
