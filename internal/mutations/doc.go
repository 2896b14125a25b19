// Package mutations holds a list of mistakes that the tests must find; it exports nothing. A mutation is a small change of a file that
// makes a result wrong without a sign, or lets ranks wait for each other for ever: a communication, a factor or a fence is taken away.
// The list is in testdata, a file for each package:
//
//	name: ddp: a bucket is averaged
//	file: ddp/bucket.go
//	test: ./ddp
//	-	return b.Group.AllReduce(x, dist.Sum.In(b.tape))
//	+	return b.Group.AllReduce(x, dist.Avg.In(b.tape))
//
// As in a diff, lines that begin with - are taken away, those with + are put in their place, and those with a space stay. The old lines
// occur once in the file. The tests of these packages must then fail.
//
// TestListed checks that the list fits the code. TestMutations runs the tests, if RINGO_MUTATIONS is 1, or a regular expression for names:
//
//	RINGO_MUTATIONS=1 go test ./internal/mutations -v -timeout 2h
//	RINGO_MUTATIONS='^tp:' go test ./internal/mutations -v
//
// Files stay as they are: the compiler gets the changed one by -overlay.
package mutations
