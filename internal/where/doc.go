// Package where finds the line of the user's program at which a panic began: what an error prints instead of a stack.
package where
