package memory

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	var c Counter
	assert.Equal(t, "  memory  now  peak\n   total  0 B   0 B", c.String())
	c.Add(Parameters, 1<<20+1<<19)
	c.Add(Communication, 700)
	c.Add(Communication, -60)
	assert.Equal(t, `         memory       now      peak
     parameters  1.50 MiB  1.50 MiB
  communication     640 B     700 B
          total  1.50 MiB  1.50 MiB`, c.String())
	text, err := json.Marshal(c.ByName())
	require.NoError(t, err)
	assert.Contains(t, string(text), `"communication":{"live":640,"peak":700}`)
	assert.Contains(t, string(text), `"total":{"live":1573504,"peak":1573564}`)
	for n, want := range map[int]string{1023: "1023 B", 1024: "1.00 KiB", 3 << 40: "3.00 TiB", 1 << 60: "1024.00 PiB"} {
		assert.Equal(t, want, Format(n))
	}
}

// Several goroutines count at the same time, and no count is lost.
func TestCountsOfSeveralGoroutines(t *testing.T) {
	var c Counter
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := range 1000 {
				c.Add(Activations, 10+i)
				c.Add(Use(1+k), 1)
				c.Add(Activations, -10-i)
			}
		})
	}
	all.Wait()
	assert.Equal(t, 4000, c.Total().Live)
	assert.Equal(t, 1000, c.Of(Parameters).Live)
	assert.True(t, 1009 <= c.Of(Activations).Peak && c.Of(Activations).Peak <= 4*1009+1000)
}

// An account counts what it still has, until Close; a use that gets all of it takes it from the others.
func TestAccount(t *testing.T) {
	var c Counter
	a := NewAccount(&c)
	a.Add(Parameters, 40)
	a.Add(Gathered, 360)
	a.Recount(Parameters)
	assert.Equal(t, []Bytes{{400, 400}, {0, 360}, {400, 400}}, []Bytes{c.Of(Parameters), c.Of(Gathered), c.Total()})
	a.Recount(Parameters)
	a.Close()
	a.Close()
	assert.Equal(t, Bytes{0, 400}, c.Total())
}
