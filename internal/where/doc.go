// Package where finds the line of the user's program at which a panic began. Errors print it instead of a stack.
package where
