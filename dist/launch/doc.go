// Package launch starts the ranks of a job as processes and tells a process which rank it is.
//
// Users call `ringo run`, and dist.Run in their program. This package is behind both. docs/LAUNCH.md describes the launchers.
//
// It has two sides. The agent (Run, used by `ringo run`) starts the workers of one host, puts the rank before each line of their output,
// and forwards signals. Agent 0 is the coordinator: it connects the agents of the other hosts, and says which host starts which ranks. When
// a rank or a host fails, it finds the first cause, ends all others, and starts them again if restarts are allowed. No process is left.
//
// The worker's side is FromEnv and ConnectAgent. FromEnv reads rank, size and rank 0's address from the environment, for every launcher
// (ringo, torchrun, Slurm, Open MPI, PMI, PMIx, Kubernetes). ConnectAgent opens the socket to the agent. Over it, a rank
// reports its progress and why it failed. If somebody watches the job (Config.Watch), it also sends values for the live view.
//
//	config.go             a job's configuration; the limits of all waits
//	coordinator_unix.go   agent 0: who takes part, generations, restarts; node_unix.go: one host; cause_unix.go: who failed first
//	run_unix.go           the agent of a host; proc_unix.go: one worker; lines.go: its output; environment_unix.go: its variables
//	state_unix.go         what ranks do for which others wait, and jobs in which no rank gets further
//	note.go, wire.go      messages of workers and agents, and how they are sent
//	rendezvous_unix.go    the connections between agents, with TLS 1.3 as between ranks (internal/identity)
//	env.go, sources.go    the worker's side: what launchers set in the environment; worker.go: its socket to the agent
//	fd_*.go, sys_*.go     inherited descriptors and process groups, by system; run_other.go: systems without Run
//
// The coordinator's state is a map of nodes and a number, the generation, which is one more after each start of the workers. There is no
// election: a job that loses host 0 ends.
//
// The variables of Ringo itself:
//
//	RINGO_RANK, RINGO_WORLD_SIZE        this process's rank and the number of ranks
//	RINGO_LOCAL_RANK, RINGO_LOCAL_SIZE  the same on this host
//	RINGO_MASTER                        host:port of rank 0; RINGO_PORT replaces only the port of other launchers
//	RINGO_JOB_SECRET, RINGO_JOB_ID      64 hex digits that all ranks share; a name for the job
//	RINGO_GENERATION                    number of the current start of the job, from 1
//	RINGO_TIMEOUT                       timeout of an operation, such as 5s
//	RINGO_JOIN_TIMEOUT                  how long ranks wait for each other at the start, such as 2m
//	RINGO_THREADS                       compute threads of each rank
//	RINGO_DEVICE                        what ranks compute on if the program does not say: cpu or cuda
//	RINGO_BIND                          the address that sockets listen on; auto: that of the interface towards rank 0
//	RINGO_PORTS                         the ports that ranks may listen on, such as 20000-20100; for rank 0 only under ringo run
//	RINGO_ENCRYPT                       0: data is not encrypted, only checked; ranks still prove that they hold the secret
//	RINGO_SHM                           0: the ranks of a host use sockets instead of shared memory
//	RINGO_WATCHED                       1: the rank sends values for the live view to its agent (ringo run -serve)
//	RINGO_REBUILD                       1: ranks go on without those that are lost (ringo run -rebuild)
//	RINGO_AGENT_FD, RINGO_LISTEN_FD     inherited descriptors: socket to the agent, rank 0's listener
//
// A rank removes its descriptors and the secret from its environment when dist.Run begins. The other variables stay, and programs
// that the rank starts inherit them. If such a program uses package dist, it takes itself for the same rank, but has no secret: start
// it without RINGO_RANK. The first environment of a process stays in /proc/PID/environ, where its own user can read it.
//
// Everything works on Linux and macOS. On other systems Run returns an error, and FromEnv works without the inherited descriptors.
package launch
