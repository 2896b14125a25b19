package reliability

// Row is a failure that must become an error.
type Row struct {
	N       int    // never changes; numbers that are missing are for engines that do not exist yet
	Fault   string // the operation, and what happens to it
	Says    string // the error
	Bound   string // longest time from the failure to the error; T is the group's timeout
	Engines string
	Tests   []string // package:Test/Subtest; of a short and a long test, the long one
}

const (
	suite = "local tcp shm"
	both  = "dist/local:TestLongConformance/"
	over  = "dist/tcp:TestLongConformance/encrypted/"
	mem   = "dist/tcp:TestLongConformance/shared/"
)

// in names a test of the conformance suite, which runs on every engine.
func in(tests ...string) []string {
	var out []string
	for _, t := range tests {
		out = append(out, both+t, over+t, mem+t)
	}
	return out
}

// Rows is the table.
var Rows = []Row{
	{1, "Reduce that only rank 0 of 4 calls", "reduce seq 2 … ranks 1-3 did not arrive", "T + 0.2 s", suite, in("Errors/Absent")},
	{2, "AllReduce on one rank, Broadcast on another", "both operations, both ranks, seq; on all ranks", "0.5 s", suite,
		in("Errors/Mismatch/Kinds")},
	{3, "AllReduce of 10 and of 12 elements", "count 10 (rank 0) vs 12 (rank 1), both shapes", "0.5 s", suite, in("Errors/Mismatch/Counts")},
	{4, "AllReduce of float32 and bfloat16", "both types", "0.5 s", suite, in("Errors/Mismatch/Types")},
	{5, "AllReduce with sum and max", "op sum (rank 0) vs max (rank 1)", "0.5 s", suite, in("Errors/Mismatch/Reductions")},
	{6, "Broadcast from root 0 and root 1", "root 0 (rank 0) vs 1 (rank 1)", "0.5 s", suite, in("Errors/Mismatch/Roots")},
	{7, "AllToAllV: rank 0 sends 3 rows, rank 1 expects 4", "rank 0 sends 3 rows to rank 1, which expects 4", "0.5 s", suite,
		in("Errors/Mismatch/AllToAllV")},
	{8, "AllGatherV with different counts", "the first difference: counts[1] = 3 (rank 0) vs 4 (rank 1)", "0.5 s", suite,
		in("Errors/Mismatch/AllGatherV")},
	{9, "ReduceScatter of a count that ranks do not divide", "names ReduceScatterV; nothing is sent", "at once", suite,
		in("Errors/Arguments/Indivisible")},
	{10, "AllReduce avg of int32", "avg, int32", "at once", suite, in("Errors/Arguments/AvgOfInts")},
	{11, "root or peer out of range, Send to oneself", "the rank and the range", "at once", suite,
		in("Errors/Arguments/NegativeRoot", "Errors/Arguments/RootTooLarge", "Errors/Arguments/SendToSelf", "Errors/Arguments/PeerTooLarge")},
	{12, "AllGather whose input overlaps its output", "overlap", "at once", suite, in("Errors/Arguments/Overlap")},
	{13, "any operation, a process is killed before or in it", "rank 2 (host h, pid p): op, seq; on all live ranks", "1 s", "tcp shm",
		[]string{"dist:TestLongEveryOperation/tcp killed before", "dist:TestLongEveryOperation/shm killed before",
			"dist:TestLongEveryOperation/tcp killed during", "dist:TestLongEveryOperation/shm killed during", "dist/tcp:TestDeadPeer",
			"dist/tcp:TestSharedFailures/DeadPeer", "cmd/ringo:TestRankKilled"}},
	{14, "any operation, a process is stopped, or its cable cut", "rank 2: no progress; op, seq; on all live ranks", "T + 0.2 s", "tcp shm",
		[]string{"dist:TestLongEveryOperation/tcp stopped before", "dist:TestLongEveryOperation/shm stopped before",
			"dist:TestLongEveryOperation/tcp stopped during", "dist:TestLongEveryOperation/shm stopped during",
			"dist:TestLongEveryOperation/tcp cable cut", "dist/tcp:TestSilentPeer", "dist/tcp:TestSharedFailures/SilentPeer",
			"cmd/ringo:TestLongRankStopped"}},
	{15, "a stopped process goes on after the others gave it up", "generation 1 is over; nobody's memory is touched", "1 s", "tcp shm",
		[]string{"dist:TestLongStoppedRankGoesOn", "dist/tcp:TestOldGeneration", "dist/tcp:TestSharedFailures/OldGeneration",
			"dist/shm:TestAbortTakesMemoryFromStoppedPeer"}},
	{16, "a rank's function returns an error while others wait", "that error, on all ranks", "1 s", suite,
		append(in("Errors/RankFails", "EveryOperation/Returns"), "dist:TestProcessFails")},
	{17, "a rank panics or calls runtime.Goexit", "rank 3: panic, with its stack", "1 s", suite,
		append(in("Errors/RankPanics"), "dist:TestProcessFails")},
	{18, "nobody waits for an operation that fails", "never waited for, from Run", "end of Run", suite, in("Errors/NeverWaitedFor")},
	{19, "any call after a failure", "the first cause, unchanged; nothing is sent", "1 ms", suite, in("Errors/FirstCauseStays")},
	{20, "WaitHost whose context ends", "ctx.Err(); the operation completes", "10 ms", suite, in("Errors/WaitHostCancelled")},
	{21, "Abort in the middle of a large AllReduce", "all ranks return; no write to a buffer after its Wait", "0.1 s", suite,
		in("Lifetimes/AbortLeavesBuffersAlone")},
	{22, "Tape.Reset with an operation in flight", "none: Reset waits", "T", suite, in("Lifetimes/BorrowedUntilDone")},
	{23, "Wait twice, on an old Work, on the zero Work", "none", "at once", suite, in("Lifetimes/OldWork")},
	{24, "an unknown algorithm; RINGO_ALGO on one rank only", "unknown algorithm \"foo\" and the list; both algorithms and ranks",
		"0.5 s", suite, append(in("Errors/Algorithms"), "dist:TestAlgorithmFromEnvironment", "dist:TestAlgorithmOfOneRank")},
	{25, "a rank with the wrong secret", "does not hold this job's secret, address; no payload; the job waits on", "50 ms", "tcp",
		[]string{"dist/tcp:TestRankWithWrongSecret", "dist/tcp:TestStrangersAreRefused", "dist/tcp:TestImpostorListener"}},
	{26, "strangers: no certificate, TLS 1.2, HTTP, 4,000 silent connections", "logged once; the job forms; heap below +64 MiB", "5 s", "tcp",
		[]string{"dist/tcp:TestStrangersAreRefused", "dist/tcp:TestLongJobFormsAmongStrangers"}},
	{27, "a secret of 7 bytes", "7 bytes, need 32", "at once", "tcp", []string{"dist/tcp:TestSecret"}},
	{28, "a frame with a wrong length, magic, checksum, generation", "names the peer; no large allocation", "50 ms", "tcp",
		[]string{"dist/tcp:TestHostileFrames", "dist/tcp:TestHostileFlood"}},
	{29, "two processes claim rank 1", "rank 1 joined twice, both hosts", "1 s", "tcp", []string{"dist/tcp:TestWrongRankJoins"}},
	{30, "a rank does not come", "waiting for rank 3 of 4; MonitoredBarrier lists all that are missing", "join timeout", suite,
		append(in("Errors/MonitoredBarrier"), "dist/tcp:TestRankMissing")},
	{31, "ranks disagree about the size of the job", "both sizes and ranks", "1 s", "tcp", []string{"dist/tcp:TestWrongRankJoins"}},
	{32, "RANK=4 of 4, RANK=x, contradictions between launchers", "variable, value, source", "at once", "launcher",
		[]string{"dist/launch:TestFromEnvErrors"}},
	{33, "torchrun's MASTER_PORT is taken; so is the next one", "forms on the next port; or names both", "5 s", "tcp",
		[]string{"dist:TestTorchrunPortTaken"}},
	{34, "two jobs are given one port", "address already in use, by which process and job; the ranks of the second are refused", "5 s", "tcp",
		[]string{"dist/tcp:TestTwoJobsOnePort"}},
	{35, "shared memory that is unsealed or short, references out of bounds", "segment 1 of rank 2, what is wrong; no SIGBUS", "50 ms", "shm",
		[]string{"dist/shm:TestRefusesSegments", "dist/shm:TestRefusesReferences"}},
	{36, "50 times all ranks are killed", "nothing is left: processes, sockets, descriptors, shared memory", "6 s", "tcp shm launcher",
		[]string{"dist/launch:TestLongNothingLeft", "dist:TestLongKilledProcessesLeaveNothing"}},
	{37, "ringo run: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGKILL to the launcher",
		"workers and all their descendants have ended; exit status 128 + n", "6 s", "launcher",
		[]string{"cmd/ringo:TestRunInterrupted", "cmd/ringo:TestNoProcessIsLeft", "cmd/ringo:TestNoFolderIsLeft",
			"dist/launch:TestSignalIsPassedOn", "dist/launch:TestSecondSignalKills", "dist/launch:TestLauncherKilled"}},
	{38, "ringo run -max-restarts: a crash at the same step each time", "so many attempts; the first primary cause; progress resets the count",
		"", "launcher", []string{"cmd/ringo:TestRestarts", "cmd/ringo:TestProgress"}},
	{39, "a host of several is lost, and -nodes min:max allows fewer", "the next generation, with fewer ranks", "10 s", "launcher",
		[]string{"cmd/ringo:TestElastic"}},
	{41, "AllReduce of 10 and of 12 elements in device memory, over NCCL (emulated): the data path hangs",
		"both counts and shapes; the communicators are aborted", "0.5 s", "nccl", []string{"dist/nccl:TestDifferentOperations"}},
	{43, "a rank sleeps one virtual hour (testing/synctest)", "rank 2 did not arrive", "0.1 s real", "local",
		[]string{"dist/local:TestTimeoutInVirtualTime"}},
	{44, "groups and engines made and closed a thousand times", "none: goroutines, descriptors and shared memory are back where they began",
		"60 s", suite,
		[]string{"dist/local:TestLongGroupsComeAndGo", "dist/tcp:TestLongGroupsComeAndGo/encrypted", "dist/tcp:TestLongGroupsComeAndGo/shared",
			"dist/tcp:TestLongGroupsLeaveNothingBehind", "dist/tcp:TestLongEnginesLeaveNothingBehind",
			"dist/tcp:TestLongFailedJoinsLeaveNothingBehind", "dist/tcp:TestLongSharedFailures/GroupsLeaveNothingBehind",
			"dist/tcp:TestLongSharedFailures/EnginesLeaveNothingBehind", "dist/tcp:TestLongSharedFailures/FailedJoinsLeaveNothingBehind",
			"dist/tcp:TestSharedAllocOutlivesRun", "dist/shm:TestGroupsGiveBack"}},
	{45, "2, 3 and 16 ranks on few cores with random delays", "none: right results, no step above 100 × the median", "60 s", suite,
		in("Lifetimes/Skew")},
	{46, "Rebuild after a death, in the middle of another one, in a cut network", "a majority goes on; the rest: generation 1 is over",
		"2 T + 0.2 s", suite, append(in("Rebuild"), "dist:TestLongRebuildProcesses", "dist:TestRebuildNoQuorum", "dist:TestLongRebuildCut",
			"internal/agree:TestOneDecision")},
	{47, "any operation, a rank is alive but busy with something else", "rank 2 did not arrive; op, seq; on all ranks", "T + 0.2 s", suite,
		in("EveryOperation/Stuck")},
	{48, "any operation, a rank is late (less than T) or slow", "none: the right result", "", suite,
		append(in("EveryOperation/Late"), "dist:TestLongEveryOperationOnGoroutines/late", "dist:TestLongEveryOperationOnGoroutines/slow",
			"dist:TestLongEveryOperation/tcp late", "dist:TestLongEveryOperation/shm late", "dist:TestLongEveryOperation/tcp slow",
			"dist:TestLongEveryOperation/shm slow", "dist/tcp:TestSlowTransferIsNoFailure")},
	{49, "two goroutines use one group at once", "two goroutines use group world at once", "1 s", suite, in("Errors/TwoGoroutinesOneGroup")},
	{50, "several hosts: a worker, an agent or the coordinator is killed, a cable is cut, a signal",
		"the first cause, on every host; no process is left; a host may come again", "1 s, 2 T", "launcher",
		[]string{"cmd/ringo:TestLongNodeFaults", "cmd/ringo:TestHostComesAgain"}},
}
