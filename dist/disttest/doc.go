// Package disttest checks that an engine does what package dist promises. The suite runs every operation with every
// reduction and element type, on groups of many sizes and shapes, against results computed here with plain loops; it makes
// the mistakes that users make and looks at the errors; and it injects delays and losses.
//
//	func TestConformance(t *testing.T) { disttest.Run(t, start) }
//
// Start runs a function on n ranks of the engine under test, as goroutines of the test process.
package disttest
