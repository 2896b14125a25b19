// Package lint holds the house rules as tests; it exports nothing. Its tests
// read the source of the whole module and fail, naming file and line, when
//
//   - a package imports what the table in table_test.go does not allow it, or
//     is not in the table (TestImports);
//   - a function is longer than 70 lines (TestFunctionLength), or a line than
//     140 characters, if it can be broken (TestLines);
//   - an exported name has no doc comment, or a package no doc.go (TestDocs);
//   - code outside tests calls time.Sleep without a "//sleep: reason" comment
//     on the line (TestSleep);
//   - a call returns a dist.Work that nobody waits for, without a
//     "//discard: reason" comment on the line (TestLongDiscardedWork);
//   - a text file names a path of somebody's machine (TestMachinePaths);
//   - an unexported name uses a word in place of this project's word for the
//     thing (TestWords);
//   - a test whose name begins with TestLong calls neither SkipUnlessLong nor
//     AsLong of internal/reliability, another function does, or RINGO_LONG is
//     read elsewhere (TestNamesOfLongRuns);
//   - a line of prose in Markdown has more than 140 characters (TestProse);
//   - a package has more code, exported names or fields of a struct than its
//     budget in testdata/budgets.txt, or much less (TestBudgets).
//
// Files of every operating system and build tag are read, except by
// TestLongDiscardedWork, which needs types and sees the current platform only.
// Generated files are exempt from the rules of length and documentation.
//
// Each rule is a function from parsed sources to findings, and each has a test
// on small bad sources, so that a rule that has stopped working is noticed.
package lint
