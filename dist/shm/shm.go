package shm

// Config says which rank of which job asks for shared memory.
type Config struct {
	Rank, Size int
	// Secret is the job's secret, Job its name and Gen its generation: the same on all ranks.
	Secret []byte
	Job    string
	Gen    uint32
}
