package shm

import (
	"errors"
	"time"
)

// Config says which rank of which job asks for shared memory.
type Config struct {
	Rank, Size int
	// Secret is the job's secret, Job its name and Gen its generation: the same on all ranks.
	Secret []byte
	Job    string
	Gen    uint32
}

// handshakeTime is how long the other end of a connection may take to say who it is.
const handshakeTime = 5 * time.Second

var errSecret = errors.New("the peer does not hold this job's secret")
