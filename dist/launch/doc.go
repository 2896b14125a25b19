// Package launch starts the ranks of a job as processes and tells a process which rank it is.
//
// It has two sides. The agent (Run, used by `ringo run`) starts the workers of one host, prefixes their output with the
// rank and passes signals on. Agent 0 coordinates: it meets the agents of the other hosts, says who starts which ranks, and
// when a rank or a host fails finds the first cause, ends all others and maybe starts them again: no process is left. The
// worker's side is FromEnv, which reads rank, size and rank 0's address from the environment, whoever launched the process
// (ringo, torchrun, Slurm, Open MPI, PMI, PMIx, Kubernetes), and ConnectAgent, the socket to the agent over which a rank
// reports its progress, why it failed, and, when somebody watches the job (Config.Watch), how it goes.
//
//	config.go       what a job is; the bounds of all waits
//	coordinator.go  agent 0: who takes part, generations, restarts; node.go: one host; cause.go: who failed first
//	run.go          the agent of a host; proc.go: one worker; lines.go: its output
//	note.go, wire.go, rendezvous.go  what agents say, over what, and how they meet: TLS 1.3 as between ranks (internal/identity)
//	env.go, sources.go, worker.go    the worker's side
//
// The coordinator's state is a map of nodes and a number, the generation: it grows with each start of the workers. There
// is no election; a job that loses host 0 ends.
//
// The variables of Ringo itself:
//
//	RINGO_RANK, RINGO_WORLD_SIZE        this process's rank and the number of ranks
//	RINGO_LOCAL_RANK, RINGO_LOCAL_SIZE  the same on this host
//	RINGO_MASTER                        host:port of rank 0; RINGO_PORT replaces only the port of other launchers
//	RINGO_JOB_SECRET, RINGO_JOB_ID      64 hex digits that all ranks share; a name for the job
//	RINGO_GENERATION                    counts the starts of the job, from 1
//	RINGO_TIMEOUT                       of an operation, such as 5s
//	RINGO_JOIN_TIMEOUT                  how long ranks wait for each other at the start, such as 2m
//	RINGO_THREADS                       compute threads of each rank
//	RINGO_DEVICE                        what ranks compute on where the program does not say: cpu or cuda
//	RINGO_BIND                          the address that sockets listen on; auto: of the interface towards rank 0
//	RINGO_PORTS                         the ports that ranks may listen on, such as 20000-20100; rank 0 only under ringo run
//	RINGO_ENCRYPT                       0: data is not encrypted, only checked; the ranks prove who they are all the same
//	RINGO_SHM                           0: the ranks of a host use sockets instead of shared memory
//	RINGO_WATCHED                       1: the rank tells its agent how it goes, because somebody watches (ringo run -serve)
//	RINGO_AGENT_FD, RINGO_LISTEN_FD     inherited descriptors: socket to the agent, rank 0's listener
//
// A rank takes its descriptors and the secret out of the environment when dist.Run begins. The other variables stay, and programs
// that it starts inherit them: one that uses package dist would take itself for the same rank, without a secret. Start such
// programs without RINGO_RANK. What a process began with stays in /proc/PID/environ, for its own user to read.
//
// On Linux and macOS everything works; elsewhere Run returns an error, and FromEnv works without the inherited
// descriptors.
package launch
