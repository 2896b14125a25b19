// Package disttest is the conformance suite of engines. It runs every operation with every reduction and element type, on groups of
// many sizes and shapes, and compares the results with plain loops. It makes the mistakes that users make, and compares the errors.
// It also injects delays and failures.
//
//	func TestConformance(t *testing.T) { disttest.Run(t, start) }
//
// Start runs a function on n ranks of the engine under test, as goroutines of the test process.
package disttest
