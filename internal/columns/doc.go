// Package columns is what the readers of tables share: which columns make a sample, and the numbers of classes.
package columns
