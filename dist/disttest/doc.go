// Package disttest is the conformance suite of engines. It runs every operation with every reduction and element type, on groups of
// many sizes and shapes, and compares the results with plain loops. It makes the mistakes that users make, and compares the errors.
// It also injects delays and failures.
//
//	func TestConformance(t *testing.T) { disttest.Run(t, start) }
//
// Start runs a function on n ranks of the engine under test, as goroutines of the test process.
//
// The suite:
//
//	suite.go                   Run and its parts; machines.go, processes.go: where it runs
//	operations.go              the table of operations; program.go: actions on the same memory, too
//	call.go                    an operation with its arguments, and what it must compute; values.go: of these elements
//	results.go, groups.go      right results: of collectives and V forms, in place and not; of groups
//	p2p.go                     messages; bytes
//	bits.go                    the same bits as goroutines
//	dependent.go               operations on the same memory; lifetime.go: who may use memory when, and what has leaked
//	errors.go, mistake.go      mistakes of users, and each operation against each other one; edges.go: rare cases
//	every.go                   each operation with a late, stuck or lost rank; faults.go: network faults
//	rebuild.go                 new groups after failures
//
// And tools for other tests:
//
//	program.go, programs.go    random programs; outcome.go: what is right for them
//	soak.go                    long runs: have operations become slower
//	adjoint.go                 Adjoint
//	train.go, result.go        trainings that are compared with one rank; on.go: where they run
//	training.go                steps that allocate nothing
package disttest
