// Package reliability has the list of failures that communication must turn into errors: what happens, what the error says, how long it
// may take, and which tests show it. docs/RELIABILITY.md is made from this list and from the measurements of those tests. A test compares
// the page with both. Long and SkipUnlessLong divide the tests of the module into short ones and those of the long runs.
package reliability
