package tcp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Who has no shared memory is told why, once on each host, unless all were asked to have none.
func TestUnsharedIsSaid(t *testing.T) {
	log := captureLog(t)
	shares, asks, lacks := func(r int) *member { return &member{Rank: r, ShmSocket: "@x"} },
		func(r int) *member { return &member{Rank: r, NoShmReason: shmOff} },
		func(r int) *member { return &member{Rank: r, NoShmReason: "ulimit"} }
	for _, c := range []struct {
		here []*member
		all  bool
		want string
	}{
		{[]*member{shares(4), shares(5)}, true, ""}, {[]*member{asks(4), asks(5)}, false, ""},
		{[]*member{lacks(4), lacks(5)}, false, "rank=4 reason=ulimit"}, {[]*member{shares(4), lacks(5)}, false, "rank=5 reason=ulimit"},
		{[]*member{asks(4), shares(5)}, false, `rank=4 reason="RINGO_SHM=0"`}, {[]*member{asks(4), lacks(5)}, false, "rank=5 reason=ulimit"},
	} {
		before := len(log.String())
		assert.Equal(t, c.all, allOffer(c.here, 4))
		assert.Equal(t, c.all, allOffer(c.here, 5))
		said := log.String()[before:]
		assert.Contains(t, said, c.want)
		assert.Equal(t, c.want != "", strings.Count(said, noShared) == 1, said)
	}
}
