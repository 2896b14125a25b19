// Package reliability holds the list of failures that communication must turn into errors: what happens, what the error
// says, how long it takes at most, and which tests show it. The page docs/RELIABILITY.md is made from it and from what those
// tests measured; a test compares the two.
package reliability
