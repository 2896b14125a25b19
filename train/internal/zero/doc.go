// Package zero has rank 0 do what one rank must do, such as looking at files, and tells the others what came of it.
package zero
